"""A parent to be killed: starts a child, has it work, prints its id and waits."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import host_payloads as say

from app.host.process import ChildProcess


async def main() -> None:
    child = ChildProcess("memory", "host_child", Path(sys.argv[1]))
    ready = await child.start(say.Options("hello"))
    stream = child.stream(say.Hang())
    async for _ in stream:
        print(ready.pid, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
