"""A child on `serve`: answers everything in host_payloads."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import host_payloads as say

from app.host.serve import Context, serve


class RefusalError(Exception):
    pass


def ready(options: say.Options, context: Context) -> say.Ready:
    if options.fail:
        raise RefusalError(options.fail)
    names = ("OMP_WAIT_POLICY", "TOKENIZERS_PARALLELISM", "HF_HUB_OFFLINE", "ANONYMIZED_TELEMETRY")
    environment = tuple((name, os.environ.get(name, "")) for name in names)
    return say.Ready(options.greeting, os.getpid(), environment, sys.stdin.read())


def count(payload: say.Count, context: Context) -> str:
    for number in range(payload.n):
        context.event(number)
    return "counted"


def count_until_cancelled(payload: say.CountUntilCancelled | say.SlowCount, context: Context) -> str:
    Path(payload.path).write_text("begun")
    try:
        number = 0
        while True:
            context.check()
            context.event(number)
            number += 1
            threading.Event().wait(0.001)
    finally:
        Path(payload.path).write_text("ended")


def crash(payload: say.Crash, context: Context) -> None:
    if payload.signal == signal.SIGSEGV:
        ctypes.string_at(0)
    os.kill(os.getpid(), payload.signal)


def leave(payload: say.Leave, context: Context) -> None:
    os._exit(payload.code)


def say_aloud(payload: say.Print, context: Context) -> str:
    print(payload.text)
    print(payload.text, file=sys.stderr)
    os.write(1, payload.text.encode())
    return "printed"


def refuse(payload: say.Refuse, context: Context) -> None:
    raise RefusalError(payload.sentence)


def break_down(payload: say.Break, context: Context) -> None:
    raise ZeroDivisionError(payload.text)


def push_back(payload: say.PushBack, context: Context) -> None:
    context.push(payload.data)


def hang(payload: say.Hang, context: Context) -> None:
    context.event("hanging")
    threading.Event().wait()


def start_helper(payload: say.StartHelper, context: Context) -> int:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid


if __name__ == "__main__":
    serve(
        {
            say.Options: ready,
            say.Echo: lambda payload, _: payload.data,
            say.Count: count,
            say.CountUntilCancelled: count_until_cancelled,
            say.Crash: crash,
            say.Leave: leave,
            say.Print: say_aloud,
            say.Refuse: refuse,
            say.Break: break_down,
            say.Unpicklable: lambda *_: threading.Lock(),
            say.PushBack: push_back,
            say.Hang: hang,
            say.StartHelper: start_helper,
        },
        background={say.SlowCount: count_until_cancelled},
        expected=(RefusalError,),
        on_stop=lambda: print("closed well"),
    )
