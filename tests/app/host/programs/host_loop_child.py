"""A child with a loop of its own, as the engine has: one step of every running count per turn."""

from __future__ import annotations

import host_payloads as say

from app.host.frames import Call, CallId, Result, Stop
from app.host.serve import Channel


def main() -> None:
    channel = Channel.from_arguments()
    running: dict[CallId, int] = {}
    while True:
        envelope = channel.receive(0 if running else None)
        if isinstance(envelope, Stop):
            return
        if isinstance(envelope, Call):
            if isinstance(envelope.payload, say.Options):
                channel.send(Result(envelope.id, "ready"))
            elif isinstance(envelope.payload, say.Count):
                running[envelope.id] = envelope.payload.n
        for call, left in list(running.items()):
            if channel.cancelled(call):
                channel.event(call, "stopped early")
                left = 0
            else:
                channel.event(call, left)
                left -= 1
            running[call] = left
            if left <= 0:
                del running[call]
                channel.send(Result(call, None))


if __name__ == "__main__":
    main()
