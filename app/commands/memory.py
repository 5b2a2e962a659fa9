"""`aios-chat search`: passages out, no model."""

from __future__ import annotations

from dataclasses import asdict

from app.commands.session import Progress, as_json, opened, say
from app.host.wire import SourceKind
from app.settings import Settings

MOST_SHOWN = 300
"""Characters of a passage in a list for people."""


async def search(settings: Settings, query: str, *, kind: SourceKind | None, limit: int, json: bool) -> int:
    """Print the passages that fit a query best. Exit code 1 when nothing was found."""
    async with opened(settings, Progress(json)) as desk:
        await desk.own()
        desk.start_memory()
        await desk.memory_up()
        result = await desk.search(query, kind=kind, limit=limit)
    if json:
        print(as_json([{**asdict(p), "place": p.place()} for p in result.passages]))
    else:
        for passage in result.passages:
            text = " ".join(passage.text.split())
            print(f"{passage.label}. {passage.place()}  ({passage.score:.2f})")
            print(f"   {text[:MOST_SHOWN]}{'…' if len(text) > MOST_SHOWN else ''}")
        if not result.passages:
            say("nothing was found")
    return 0 if result.passages else 1
