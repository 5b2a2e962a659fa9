"""TREC CAsT 2019: follow-up questions as people ask them, and the same made to stand alone.

From the questions before it, recall must make a search query that holds the noun which the follow-up leaves out. A
question that stands alone as it is must be searched for as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import Path

from memory import Memory
from memory.types import Message, RecallRequest, SourceId
from memory.words import fold, query_terms, stem
from tests.bench.recall.opened import new_memory

FILES = ("cast2019_topics.json", "cast2019_resolved.tsv")
_WORD = re.compile(r"\w+(?:['’](?!s\b)\w+)?")


def measure(folder: Path) -> dict[str, float]:
    """Ask every topic's questions in a chat of its own; all the earlier ones are visible."""
    topics = json.loads((folder / FILES[0]).read_text(encoding="utf-8"))
    lines = (folder / FILES[1]).read_text(encoding="utf-8").splitlines()
    resolved = {key.strip(): text.strip() for key, text in (line.split("\t", 1) for line in lines if "\t" in line)}
    heads: list[bool] = []
    all_words: list[bool] = []
    untouched: list[bool] = []
    with new_memory() as memory:
        for topic in topics:
            for asked, query, number in _queries(memory, topic):
                full = resolved.get(f"{topic['number']}_{number}")
                if full is None:
                    continue
                if full == asked:
                    untouched.append(query.strip() == asked)
                elif added := _longest_addition(asked, full):
                    words = {stem(word) for word in _words(query)}
                    heads.append(added[-1] in words)
                    all_words.append(words.issuperset(added))
    print(f"\nCAsT 2019: {len(heads)} follow-ups that leave a noun out, {len(untouched)} questions that stand alone")
    print(f"the noun's head is searched for {_percent(heads):.1f} %, all its words {_percent(all_words):.1f} %")
    return {"cast_resolved": _percent(heads), "cast_untouched": _percent(untouched)}


def _queries(memory: Memory, topic: dict) -> list[tuple[str, str, int]]:
    """(question, the query that recall made of it, number) of every turn but the first."""
    chat = SourceId(f"topic-{topic['number']}")
    path: list[str] = []
    out: list[tuple[str, str, int]] = []
    for turn in topic["turn"]:
        asked = turn["raw_utterance"].strip()
        if path:
            request = RecallRequest(asked, chat, visible=frozenset(path), path=tuple(path))
            out.append((asked, memory.recall(request, lambda text: len(text) // 4).decision.query, turn["number"]))
        name = f"{chat}-{turn['number']}"
        memory.remember([Message(chat, "Chat", name, path[-1] if path else None, "user", asked, 1.5e9 + len(path))])
        path.append(name)
    return out


def _longest_addition(asked: str, full: str) -> list[str]:
    """The longest run of words that the full form adds, as stems of its words with content; the last is the head."""
    before, after = _words(asked), _words(full)
    known = {stem(word) for word in before}
    best: list[str] = []
    for operation, _, _, start, end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if operation in ("insert", "replace"):
            content = set(query_terms(" ".join(after[start:end])))
            added = [stem(word) for word in after[start:end] if stem(word) in content and not _stop(word)]
            added = [word for word in added if word not in known]
            best = max(best, added, key=len)
    return best


def _stop(word: str) -> bool:
    # Stop words alone are searched for when there is nothing else: beside a word with content they are not.
    return stem(word) not in query_terms(f"{word} aardvark")


def _words(text: str) -> list[str]:
    return _WORD.findall(fold(text))


def _percent(values: Sequence[bool]) -> float:
    return 100 * sum(values) / len(values) if values else 0.0
