"""How a peer's process answers `peers.Peer`: one request a line, one answer a line, both JSON. Imports nothing of ours
and nothing but the standard library: the peer's Python may be another one."""

from __future__ import annotations

import json
import sys
from typing import Any


def serve(peer: Any) -> None:
    """Answer until the input ends: `{"do": name, **arguments}` calls the peer's method of that name."""
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(getattr(peer, request.pop("do"))(**request)), flush=True)
