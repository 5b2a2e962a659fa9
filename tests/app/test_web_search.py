"""Web search against a real HTTP server on this machine; off unless the person set it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from app import web_search
from app.doctor import network
from app.settings import SettingsError, load_settings
from app.web_search import MOST_RESULTS, WebSearchError, search_web
from tests.app.searx import BRIDGE, DAM, Engine, search_engine


@pytest.fixture
def engine() -> Iterator[Engine]:
    with search_engine() as running:
        yield running


def test_a_searxng_server_is_asked_for_json_and_its_results_come_in_order(engine: Engine) -> None:
    found = search_web(f"{engine.address}/", "How tall is\n the Hoover  Dam?")
    assert [(r.url, r.title, r.text) for r in found] == [(d["url"], d["title"], d["content"]) for d in (DAM, BRIDGE)]
    assert engine.asked == [{"path": ["/search"], "q": ["How tall is the Hoover Dam?"], "format": ["json"]}]


def test_strange_results_are_cut_or_left_out(engine: Engine) -> None:
    rows: list[dict[str, object]] = [
        {"url": "javascript:alert(1)", "title": "x", "content": "x"},
        {"url": "https://a.example", "title": None, "content": None},
        {"url": "https://b.example", "title": "t" * 9999, "content": "w " * 9999},
        *({**DAM, "url": f"https://c.example/{n}"} for n in range(20)),
        DAM,
        DAM,
    ]
    engine.body = json.dumps({"results": rows})
    found = search_web(engine.address, "dam")
    assert [r.url for r in found][:2] == ["https://b.example", "https://c.example/0"]
    assert len(found) == MOST_RESULTS
    assert all(len(r.title) <= 200 and len(r.text) <= 2000 for r in found)


@pytest.mark.parametrize(
    ("status", "body", "named"),
    [
        (403, "", "settings.yml"),
        (500, "", "answered 500"),
        (404, "<html>", "answered 404"),
        (200, "<html>no JSON</html>", "as SearXNG does"),
        (200, "[]", "as SearXNG does"),
        (200, '{"results": 7}', "as SearXNG does"),
        (200, '{"results": [{"title": "no address"}]}', "as SearXNG does"),
        (200, '{"results": []}', "found nothing"),
    ],
)
def test_an_answer_that_is_no_use_is_one_sentence(engine: Engine, status: int, body: str, named: str) -> None:
    engine.status, engine.body = status, body
    with pytest.raises(WebSearchError, match=named) as raised:
        search_web(engine.address, "dam")
    assert str(raised.value).endswith(".")


def test_a_server_that_is_not_there_is_one_sentence() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(WebSearchError, match="cannot be reached"):
        search_web(address, "dam")


def test_duckduckgo_is_asked_through_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Ddgs:
        def __init__(self, **_: object) -> None:
            pass

        def text(self, query: str, **_: object) -> list[dict[str, str]]:
            asked.append(query)
            if "fail" in query:
                from ddgs.exceptions import DDGSException

                raise DDGSException("no results")
            return [{"href": DAM["url"], "title": DAM["title"], "body": DAM["content"]}]

    monkeypatch.setattr("ddgs.DDGS", Ddgs)
    assert search_web("duckduckgo", "dam") == (web_search.WebResult(DAM["url"], DAM["title"], DAM["content"]),)
    with pytest.raises(WebSearchError, match="did not answer"):
        search_web("duckduckgo", "fail")
    assert asked == ["dam", "fail"]


def test_it_is_off_until_it_is_set_and_opens_no_socket_then(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    with pytest.raises(WebSearchError, match="set web_search"):
        search_web(load_settings(None, {}, environ={}).web_search, "dam")


@pytest.mark.parametrize("value", ["google", "ftp://x", "https://", "http://a b"])
def test_a_setting_that_names_no_engine_is_refused(value: str) -> None:
    with pytest.raises(SettingsError, match="SearXNG"):
        load_settings(None, {"web_search": value}, environ={})


def test_the_doctor_says_whom_a_question_goes_to() -> None:
    assert "web search is off" in network.check({}).detail
    assert "https://searx.example" in network.check({}, web_search="https://searx.example").detail
