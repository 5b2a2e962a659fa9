"""LoCoMo (Maharana et al. 2024): long chats of two people, and the turns in which each question's answer stands."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import fmean

from memory import Memory
from memory.types import Message, SourceId
from tests.bench.recall.opened import new_memory

FILE = "locomo_dev.json"
_DEPTH = 60
"""Hits asked for: enough that five sessions are among them."""
_KINDS = {1: "several turns", 2: "time", 3: "open domain", 4: "one turn", 5: "unanswerable"}
_COLUMNS = ("turn_r10", "turn_r25", "turn_r10_pm1", "session_r5")


@dataclass(frozen=True)
class Outcome:
    """One question's shares of evidence found, in the order of `_COLUMNS`."""

    conversation: str
    kind: int
    shares: tuple[float, ...]


def messages_of(conversation: dict, name: str) -> list[Message]:
    """Every turn as a message of one chat, at its session's time; the speaker's name stands before the text."""
    out: list[Message] = []
    sessions = sorted(int(m[1]) for key in conversation if (m := re.fullmatch(r"session_(\d+)", key)))
    for session in sessions:
        began = datetime.strptime(conversation[f"session_{session}_date_time"], "%I:%M %p on %d %B, %Y").timestamp()
        for number, turn in enumerate(conversation[f"session_{session}"]):
            photo = f" [photo: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
            out.append(
                Message(
                    chat=SourceId(name),
                    chat_title="Chat",
                    id=turn["dia_id"],
                    parent=out[-1].id if out else None,
                    role="user",
                    text=f"{turn['speaker']}: {turn['text']}{photo}",
                    time=began + number,
                )
            )
    return out


def measure(folder: Path) -> dict[str, float]:
    """Fill one memory a conversation, ask its questions, average over all questions."""
    outcomes: list[Outcome] = []
    for sample in json.loads((folder / FILE).read_text(encoding="utf-8")):
        with new_memory() as memory:
            messages = messages_of(sample["conversation"], sample["sample_id"])
            memory.remember(messages)
            outcomes += _ask(memory, sample, [message.id for message in messages])
    _print(outcomes)
    return {f"locomo_{column}": _mean(outcomes, number) for number, column in enumerate(_COLUMNS)}


def _ask(memory: Memory, sample: dict, order: Sequence[str]) -> Iterator[Outcome]:
    place = {turn: number for number, turn in enumerate(order)}
    for question in sample["qa"]:
        evidence = {turn for text in question["evidence"] for turn in re.findall(r"D\d+:\d+", text)} & place.keys()
        if not evidence:
            continue
        ranked = [str(hit.passage.place.message) for hit in memory.search(question["question"], _DEPTH)]
        ranked = list(dict.fromkeys(ranked))
        around = {beside for turn in ranked[:10] for beside in order[max(0, place[turn] - 1) : place[turn] + 2]}
        sessions = list(dict.fromkeys(_session(turn) for turn in ranked))[:5]
        shares = (
            _share(evidence, ranked[:10]),
            _share(evidence, ranked[:25]),
            _share(evidence, around),
            _share({_session(turn) for turn in evidence}, sessions),
        )
        yield Outcome(sample["sample_id"], question["category"], shares)


def _session(turn: str) -> str:
    return turn.split(":")[0]


def _share(wanted: set[str], found: Sequence[str] | set[str]) -> float:
    return len(wanted & set(found)) / len(wanted)


def _mean(outcomes: Sequence[Outcome], column: int) -> float:
    return 100 * fmean(outcome.shares[column] for outcome in outcomes)


def _print(outcomes: Sequence[Outcome]) -> None:
    print(f"\n{'LoCoMo, % of the evidence':<28}" + "".join(f"{column:>14}" for column in (*_COLUMNS, "questions")))
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.conversation].append(outcome)
        groups[_KINDS.get(outcome.kind, str(outcome.kind))].append(outcome)
    for name, group in (*groups.items(), ("all", list(outcomes))):
        cells = "".join(f"{_mean(group, number):14.1f}" for number in range(len(_COLUMNS)))
        print(f"{name:<28}{cells}{len(group):14}")
