"""The memory manager and the processor: tokens in, tokens out, inside a quota.

`Engine` runs chats over a `Pool` of pages that is allocated once; `window.py` is the rule of what a token sees.
Design: a KV cache is a cache and may be thrown away at any time; text is the only storage format.
"""
