"""A store of some three hundred messages and six files, and what people ask it: see tests/cases/recall.

`python -m tests.memory.decisions` measures the half of the lines that may be looked at and names those that fail;
with `all`, the other half as well, which is only measured.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pymupdf

from memory import Memory
from memory.types import Message, Recall, RecallRequest, SourceId
from tests.models import embedder_folder

CASES = Path(__file__).parents[1] / "cases" / "recall"
NEEDS_NOTHING = frozenset({"small talk", "rewriting", "arithmetic"})
NOW = SourceId("now")
_ITINERARY = (
    "Itinerary\nPorto to Pocinho on 14 May, departure 09:10 from São Bento, change in Régua.",
    "Reservation\nCoach 3, seat 27, window side, facing forward. Paid in full.",
    "Lisbon\nApartment in Alfama from 18 to 22 May, booking code LX-90417, keys at the kiosk.",
)


@dataclass(frozen=True, slots=True)
class Line:
    """Something a person types. `wanted`: one of these must be recalled for it; empty when there is nothing to recall.
    `earlier`: what was asked just before, in the same chat."""

    kind: str
    asked: str
    wanted: tuple[str, ...]
    earlier: tuple[str, ...]
    open: bool
    """Whether one may look at how it fails, and change the rules for it."""


def lines() -> list[Line]:
    """All lines of the table; every other one of a kind is open."""
    seen: Counter[str] = Counter()
    found: list[Line] = []
    for row in (CASES / "lines.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        kind, asked, wanted, earlier = row.split("\t")
        seen[kind] += 1
        found.append(Line(kind, asked, _parts(wanted, "|"), _parts(earlier, " // "), seen[kind] % 2 == 1))
    return found


def _parts(text: str, separator: str) -> tuple[str, ...]:
    return tuple(text.split(separator)) if text else ()


def messages() -> list[Message]:
    """The messages of chats.txt."""
    found: list[Message] = []
    chat, title, when = "", "", 0.0
    for row in (CASES / "chats.txt").read_text(encoding="utf-8").splitlines():
        mark, text = row.split(" ", 1)
        if mark == "#":
            title, date = text.split(" @ ")
            chat, when = f"chat-{title}", time.mktime(time.strptime(date, "%Y-%m-%d %H:%M"))
            parent: str | None = None
            continue
        when += 60.0
        name = f"{chat}-{int(when)}"
        role = "user" if mark == ">" else "assistant"
        found.append(Message(SourceId(chat), title, name, parent, role, text, when))
        parent = name
    return found


def fill(memory: Memory, folder: Path) -> None:
    """Remember all messages and read all files, one of them a PDF made here."""
    memory.remember(messages())
    itinerary = folder / "itinerary_douro.pdf"
    document = pymupdf.open()
    for text in _ITINERARY:
        document.new_page().insert_textbox(pymupdf.Rect(60, 60, 540, 780), text)
    document.save(itinerary)
    for file in (*sorted((CASES / "files").iterdir()), itinerary):
        memory.ingest(file, file.name, str(file), lambda _progress: None, lambda: False)


def asked(memory: Memory, line: Line, budget: int = 400) -> Recall:
    """Ask it in a chat of its own, of which nothing else is remembered."""
    request = RecallRequest(line.asked, NOW, earlier=line.earlier, budget_tokens=budget)
    return memory.recall(request, lambda text: len(text.encode()) // 4 + 1)


def right(line: Line, recall: Recall) -> bool:
    """Whether what is wanted stands in the block; or, when nothing is, whether no passage was delivered."""
    if not line.wanted:
        return not recall.hits
    return any(wanted.casefold() in recall.block.casefold() for wanted in line.wanted)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One line and what recall did."""

    line: Line
    recall: Recall

    @property
    def right(self) -> bool:
        """See `right`."""
        return right(self.line, self.recall)


def outcomes(memory: Memory, chosen: Iterable[Line]) -> Iterator[Outcome]:
    """Ask them all."""
    for line in chosen:
        yield Outcome(line, asked(memory, line))


def wrong_share(found: Iterable[Outcome], kinds: frozenset[str]) -> float:
    """Share of the wrong among these kinds, 0..1."""
    chosen = [outcome for outcome in found if outcome.line.kind in kinds]
    return sum(not outcome.right for outcome in chosen) / len(chosen)


def main() -> None:
    """Print the shares and the open failures."""
    everything = lines()
    halves = (True, False) if "all" in sys.argv else (True,)
    with tempfile.TemporaryDirectory() as folder:
        memory = Memory.open(Path(folder) / "memory", embedder_folder())
        fill(memory, Path(folder))
        memory.wait_until_indexed()
        for half in halves:
            found = list(outcomes(memory, [line for line in everything if line.open is half]))
            wrong = [outcome for outcome in found if not outcome.right]
            for outcome in wrong if half else ():
                line, recall = outcome.line, outcome.recall
                print(f"{line.kind}: {line.asked!r} ({recall.decision.reason}) wanted {line.wanted}", flush=True)
                for hit in recall.hits:
                    print(f"      {hit.score} {hit.dense} {hit.lexical} {hit.passage.text[:90]!r}")
            total = Counter(outcome.line.kind for outcome in found)
            failed = Counter(outcome.line.kind for outcome in wrong)
            print("open half" if half else "other half")
            for kind in total:
                print(f"  {kind:12} {failed[kind]:3} of {total[kind]:3} wrong")
        memory.close()


if __name__ == "__main__":
    main()
