"""Runs the engine and the memory, each in a child process: call, stream, cancel, restart."""
