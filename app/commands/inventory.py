"""`aios-chat memory list`, `why`, `rebuild`, `export` and `stats`: what the memory holds, with no model loaded."""

from __future__ import annotations

import json as jsons
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict

from app.commands.session import Progress, as_json, counted, opened
from app.desk import Desk
from app.host.digests import KeptDigest
from app.host.inspection import Leg, PassedOver, SourceInfo, Why
from app.host.wire import Passage, SourceKind
from app.settings import Settings

MOST_SHOWN = 200
"""Characters of a passage in a list for people."""
MOST_PASSED_OVER = 5
"""Passages that were not delivered, in a list for people; `--json` tells them all."""


@asynccontextmanager
async def with_memory(settings: Settings, progress: Progress) -> AsyncIterator[Desk]:
    """A desk whose memory is up. Raises DeskError when it does not come up."""
    async with opened(settings, progress) as desk:
        await desk.own()
        desk.start_memory()
        await desk.memory_up()
        progress.clear()
        yield desk


async def list_sources(settings: Settings, *, kind: SourceKind | None, json: bool) -> int:
    """List every chat and file, the newest first."""
    async with with_memory(settings, Progress(json)) as desk:
        await desk.indexed()
        rows = [row for row in await desk.memory.sources() if kind in (None, row.kind)]
    if json:
        print(as_json(rows))
        return 0
    for row in rows:
        facts = [counted(row.passages, "passage")] + ([counted(row.pages, "page")] if row.pages is not None else [])
        print(f"{row.id}  {row.kind:8}  {_day(row)}  {', '.join(facts):>14}  {row.title or 'untitled'}")
    return 0


def _day(row: SourceInfo) -> str:
    when = row.newest if row.kind is SourceKind.CHAT and row.newest is not None else row.added
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(when))


async def why(settings: Settings, question: str, given: str | None, *, json: bool) -> int:
    """Show what recall does for a question. Raises DeskError for an unknown chat."""
    async with with_memory(settings, Progress(json)) as desk:
        await desk.indexed()
        chat = None if given is None else (await desk.find_chat(given)).id
        options = desk.turn_options()
        budget = int(settings.window_tokens * settings.recall_share)
        told = await desk.memory.why(question, chat, budget, options.tokenizer_file)
    if json:
        print(as_json(told))
    else:
        print(_explained(told))
    return 0


def _explained(why: Why) -> str:
    lines = [
        f"decision  {why.scope}: {why.reason}",
        f"query     {' / '.join(why.query.split(chr(10))) or '(none: files are read from their start)'}",
        f"budget    {why.block_tokens} of {why.budget_tokens} tokens used; {why.seconds * 1000:.0f} ms",
    ]
    lines += [line for leg in why.delivered for line in _leg(leg)]
    if not why.delivered:
        lines.append("delivered nothing")
    shown = why.passed_over[:MOST_PASSED_OVER]
    if shown:
        lines.append(f"passed over {why.found - len(why.delivered)} of {why.found} found, the best of them:")
    lines += [line for one in shown for line in _passed_over(one)]
    return "\n".join(lines)


def _passed_over(one: PassedOver) -> list[str]:
    places = ", ".join(
        f"{leg} place {place}" for leg, place in (("meaning", one.by_meaning), ("words", one.by_words)) if place
    )
    figures = f"score {one.score:.2f}, nearness {one.nearness:.2f} of {one.bar:.2f}{places and ', '}{places}"
    return [f"-  {one.passage.place()}  ({one.reason}; {figures})", f"   {_short(one.passage.text)}"]


def _leg(leg: Leg) -> list[str]:
    passage = leg.passage
    scores = f"score {leg.score:.2f}, meaning {leg.dense:.2f}, words {leg.lexical:.2f}"
    return [f"{passage.label}. {passage.place()}  ({scores})", f"   {_short(passage.text)}"]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MOST_SHOWN else f"{line[:MOST_SHOWN]}…"


async def rebuild(settings: Settings, *, quiet: bool) -> int:
    """Make the indexes anew, with the share that is done on stderr where that is a terminal."""
    progress = Progress(quiet)
    async with with_memory(settings, progress) as desk:
        await desk.indexed()
        total = 0
        async for done in desk.memory.rebuild():
            progress.show(f"indexing anew: {done.done:,} of {counted(done.total, 'passage')}")
            total = done.total
        progress.clear()
    if not quiet:
        print(f"{counted(total, 'passage')} indexed anew")
    return 0


async def digest(settings: Settings, *, json: bool, quiet: bool) -> int:
    """Have the model sum up all that no digest sums up yet; nothing is in a window then. Raises DeskError."""
    progress = Progress(quiet or json)
    done: list[KeptDigest] = []
    async with with_memory(settings, progress) as desk:
        await desk.indexed()
        desk.start_model()
        await desk.model_up()
        async for kept in desk.memory.digests(desk.digester):
            done.append(kept)
            progress.show(f"{counted(len(done), 'digest')}")
            if not json and not quiet:
                progress.clear()
                print(f"by {kept.maker}{f' (the model: {kept.refused})' if kept.refused else ''}: {_short(kept.text)}")
    if json:
        print(as_json(done))
    elif not quiet:
        print(f"{counted(len(done), 'digest')} made")
    return 0


async def export(settings: Settings, *, kind: SourceKind | None, json: bool) -> int:
    """Print every passage: JSON lines, or Markdown with a heading for each source."""
    async with with_memory(settings, Progress(True)) as desk:
        await desk.indexed()
        source = ""
        async for some in desk.memory.passages():
            for passage in some:
                if kind not in (None, passage.source_kind):
                    continue
                if json:
                    print(_line(passage))
                    continue
                if passage.source_id != source:
                    source = passage.source_id
                    print(f"# {passage.title or 'untitled'} ({passage.path or passage.source_id})\n")
                who = f", {passage.role}" if passage.role else ""
                print(f"**{passage.place()}{who}**\n\n{passage.text.strip()}\n")
        sys.stdout.flush()
    return 0


def _line(passage: Passage) -> str:
    fields = asdict(passage)
    for only_of_a_search in ("label", "score"):
        del fields[only_of_a_search]
    return jsons.dumps({**fields, "place": passage.place()}, ensure_ascii=False)


async def stats(settings: Settings, *, json: bool) -> int:
    """Print what the memory holds and takes."""
    async with with_memory(settings, Progress(json)) as desk:
        await desk.indexed()
        size = await desk.memory.size()
    if json:
        print(as_json(size))
        return 0
    print(f"{counted(size.chats, 'chat')}, {counted(size.documents, 'document')}, {counted(size.passages, 'passage')}")
    if size.digests:
        print("summed up: " + ", ".join(f"{counted(made.count, 'digest')} by {made.maker}" for made in size.digests))
    for part in size.sizes:
        print(f"{part.part}: {part.bytes / 1e6:,.1f} MB")
    print(f"embedder: {size.embedder}; {counted(size.unindexed, 'passage')} without a vector yet")
    if size.problem:
        print(size.problem)
    return 0
