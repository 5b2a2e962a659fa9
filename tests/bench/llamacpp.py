"""llama.cpp's side of `tests.bench.cpu`, run by a Python that has llama-cpp-python.

One request a line, one answer a line. A request is `{"tokens": [...], "new": n}`: read the tokens from nothing, then n
more, one at a time. The answer is `[seconds of reading, seconds of the n]`. It imports nothing of ours.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any


def main(file: str, threads: int, context: int) -> None:
    """Answer until the input ends."""
    from llama_cpp import Llama

    model: Any = Llama(file, n_ctx=context, n_threads=threads, n_threads_batch=threads, verbose=False)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        model.reset()
        began = time.perf_counter()
        model.eval(request["tokens"])
        first = time.perf_counter()
        for index in range(request["new"]):
            model.eval([100 + index])
        print(json.dumps([first - began, time.perf_counter() - first]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
