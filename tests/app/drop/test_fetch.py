"""A web page is fetched when asked, from a real server on this machine, and within limits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from app.drop import fetch as fetching
from app.drop.fetch import FetchError, Url, as_url, fetch

_PAGE = b"<html><body><p>The tide turns at six.</p></body></html>"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        match self.path.partition("?")[0]:
            case "/tides/today":
                self._answer(200, {"Content-Type": "text/html; charset=utf-8"}, _PAGE)
            case "/moved":
                self._answer(302, {"Location": "/tides/today"}, b"")
            case "/circle":
                self._answer(302, {"Location": "/circle"}, b"")
            case "/large":
                self._answer(200, {"Content-Type": "application/pdf"}, bytes(3000))
            case "/..%2f..%2fetc%2fpasswd":
                self._answer(200, {"Content-Type": "text/plain"}, b"x")
            case _:
                self._answer(404, {}, b"gone")

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    served = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{served.server_port}"
    served.shutdown()
    served.server_close()


def test_a_page_becomes_a_file_named_after_its_address(server: str, tmp_path: Path) -> None:
    for path in ("/tides/today", "/tides/today?x=1"):
        file = fetch(Url(server + path), tmp_path)
        assert (file.name, file.read_bytes()) == ("127.0.0.1 tides today.html", _PAGE)
    assert fetch(Url(server + "/moved"), tmp_path).read_bytes() == _PAGE


def test_a_name_never_leaves_its_folder(server: str, tmp_path: Path) -> None:
    file = fetch(Url(server + "/..%2f..%2fetc%2fpasswd"), tmp_path)
    assert file.parent == tmp_path
    assert file.read_bytes() == b"x"


@pytest.mark.parametrize(("path", "word"), [("/nothing", "404"), ("/circle", "without end")])
def test_what_cannot_be_fetched_is_one_sentence(server: str, tmp_path: Path, path: str, word: str) -> None:
    with pytest.raises(FetchError, match=word):
        fetch(Url(server + path), tmp_path)


def test_limits_of_size_and_time(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(fetching, "LARGEST_PAGE", 1000)
        with pytest.raises(FetchError, match="larger than"):
            fetch(Url(server + "/large"), tmp_path)
    monkeypatch.setattr(fetching, "LONGEST_SECONDS", -1.0)
    with pytest.raises(FetchError, match="longer than"):
        fetch(Url(server + "/large"), tmp_path)


def test_an_address_where_nobody_answers(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="was not fetched"):
        fetch(Url("http://127.0.0.1:9/"), tmp_path)


@pytest.mark.parametrize("text", ["https://example.org", " http://x/y?z ", "HTTPS://EXAMPLE.ORG/a"])
def test_addresses(text: str) -> None:
    assert as_url(text) == text.strip()


@pytest.mark.parametrize("text", ["example.org", "ftp://x/y", "file:///etc/hosts", "https://", "see https://x.org"])
def test_what_is_no_address(text: str) -> None:
    assert as_url(text) is None
