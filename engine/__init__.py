"""The memory manager and the processor: tokens in, tokens out, inside a quota."""
