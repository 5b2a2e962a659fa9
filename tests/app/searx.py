"""A search engine on this machine that answers as SearXNG does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

DAM = {
    "url": "https://dams.example/hoover",
    "title": "The Hoover Dam",
    "content": "The Hoover Dam is 221 metres tall and was finished in 1936.",
    "engine": "test",
}
BRIDGE = {"url": "https://bridges.example/a", "title": "A bridge", "content": "The bridge is 90 metres long."}


class Engine:
    """What it answers, and what it was asked."""

    def __init__(self) -> None:
        self.status = 200
        self.body = json.dumps({"query": "", "results": [DAM, BRIDGE]})
        self.asked: list[dict[str, list[str]]] = []
        self.address = ""


@contextmanager
def search_engine() -> Iterator[Engine]:
    """Run one until the end of the block."""
    engine = Engine()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            engine.asked.append({"path": [asked.path], **parse_qs(asked.query)})
            self.send_response(engine.status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(engine.body.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    engine.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield engine
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
