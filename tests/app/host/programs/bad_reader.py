"""A reader of files that does what the file's name says: hang, die, swell, or tell its process id."""

from __future__ import annotations

import os
import threading

from app.host.apart import ReadRequest
from app.host.serve import Channel, Context, serve
from memory.chunking import Section
from memory.ingest.extract import Extract, Format
from memory.types import NoTextError, Progress


def read(request: ReadRequest, context: Context) -> Extract:
    context.event(Progress("read", 0, 1))
    match request.name:
        case "hang":
            threading.Event().wait()
        case "die":
            os.abort()
        case "refuse":
            raise NoTextError("refuse has no text.")
        case "stumble":
            raise KeyError("x")
    return Extract(Format.TEXT, (Section(str(os.getpid())),))


if __name__ == "__main__":
    serve({ReadRequest: read}, expected=(NoTextError,), threads=1, channel=Channel.from_arguments())
