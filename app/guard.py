"""Around every run of the program: a failure is one sentence on stderr and an exit code, never a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from app.errors import PersonError

FAILED, MISUSED, INTERRUPTED = 1, 2, 130


def guarded(command: Callable[[], object]) -> int:
    """Run a command; its exit code. What it raises for the person is said in one line."""
    try:
        code = command()
    except PersonError as error:
        return complain(str(error), error.exit_code)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe has gone (head, less); what is still buffered must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return code if isinstance(code, int) else 0


def complain(sentence: str, code: int) -> int:
    """Say a sentence on stderr; returns `code`."""
    print(f"aios-chat: {sentence}", file=sys.stderr)
    return code
