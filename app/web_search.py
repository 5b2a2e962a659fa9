"""Asks a search engine, when a person asked for it: a SearXNG server at an address of theirs, or DuckDuckGo. Off unless
the setting `web_search` names one of them."""

from __future__ import annotations

from app.drop.fetch import as_url
from app.errors import PersonError
from app.host.web import WebResult

OFF, DUCKDUCKGO = "off", "duckduckgo"
MOST_RESULTS = 8
_SECONDS = 15.0
_LONGEST_QUERY = 400
_MOST_TEXT, _MOST_TITLE = 2000, 200
"""Characters taken of a result: what a strange server sends may have any length."""


class WebSearchError(PersonError):
    """One sentence: why the web was not searched, and what to do."""


def search_web(engine: str, question: str) -> tuple[WebResult, ...]:
    """What `engine` finds for a question: DUCKDUCKGO, or the address of a SearXNG server. Blocks. Raises
    WebSearchError; also when nothing was found."""
    query = " ".join(question.split())[:_LONGEST_QUERY]
    if engine == OFF:
        raise WebSearchError(
            "The web is not searched: set web_search to duckduckgo, or to a SearXNG address, in the settings file."
        )
    found = _duckduckgo(query) if engine == DUCKDUCKGO else _searxng(engine, query)
    results = [result for result in found if as_url(result.url) and (result.text or result.title)]
    if not results:
        raise WebSearchError(f"{engine} found nothing for this question: word it otherwise.")
    return tuple({result.url: result for result in results[:MOST_RESULTS]}.values())


def _searxng(address: str, query: str) -> list[WebResult]:
    import httpx

    try:
        answer = httpx.get(
            f"{address.rstrip('/')}/search", params={"q": query, "format": "json"}, timeout=_SECONDS, trust_env=True
        )
        if answer.status_code == 403:
            raise WebSearchError(f"{address} does not answer in JSON: allow the format json in its settings.yml.")
        answer.raise_for_status()
        rows = answer.json()["results"]
        return [_result(row["url"], row.get("title"), row.get("content")) for row in rows]
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        raise WebSearchError(f"{address} answered {status}: check the address in web_search.") from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise WebSearchError(f"{address} cannot be reached ({error}): check web_search and the network.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WebSearchError(f"{address} does not answer as SearXNG does: check the address in web_search.") from error


def _duckduckgo(query: str) -> list[WebResult]:
    from ddgs import DDGS
    from ddgs.exceptions import DDGSException

    try:
        rows = DDGS(timeout=int(_SECONDS)).text(query, max_results=MOST_RESULTS, backend="duckduckgo")
    except DDGSException as error:
        raise WebSearchError(f"DuckDuckGo did not answer ({error}): try again later, or use SearXNG.") from error
    return [_result(row.get("href", ""), row.get("title"), row.get("body")) for row in rows]


def _result(url: object, title: object, text: object) -> WebResult:
    words = [" ".join(value.split()) if isinstance(value, str) else "" for value in (title, text)]
    return WebResult(str(url).strip(), words[0][:_MOST_TITLE], words[1][:_MOST_TEXT])
