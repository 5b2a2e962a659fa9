"""What a talk was about, in few words: the question that a model is asked, the judge of its answer, and the extract
that stands for it where the answer is no good. Pure text.

Small models invent: of twelve summaries that SmolLM2-135M-Instruct wrote of four short talks (three ways to ask), five
went on with the talk instead, one named a city that nobody had named, two said one thing over and over, one was a line
of the talk. So a summary is believed only as far as its words are the talk's own, and the extract goes with it always.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from memory.words import content_terms, fold, stem, tokens

ASKED = (
    "Here is a conversation:\n\n{talk}\n\nIn one or two sentences, in the language of the conversation: what did they "
    "talk about, and what did they decide?"
)
"""Of three ways to ask the starter model this one made it sum up at all, rather than go on with the talk."""
MOST_SUMMARY_TOKENS = 80
_MOST_OF_A_TURN = 400
"""Characters of one turn that the model reads: what a long answer is about stands at its beginning."""
_LEAST_GROUNDED = 0.7
"""Share of a summary's content words that must be words of the talk. "Discussed", "decided" and the like are not
counted."""
_MOST_COPIED = 0.9
_REPEATED = 4
"""So many words in a row, twice, are a loop."""
_SHORTEST, _LONGEST = 20, 800
"""Bytes of a summary: a Chinese character has three."""
_MOST_QUOTED = 320
"""Characters of the sentences in an extract."""
_MOST_OF_A_SENTENCE = 140
_KEY_WORDS = 6

_SPEAKER = re.compile(r"(^|\n)\s*(user|assistant|human|person|ai)\s*[:：]", re.IGNORECASE)
_SENTENCE = re.compile(r"[^.!?。！？\n]+(?:[.!?]+(?=\s|$)|[.!?](?=\S)[^.!?。！？\n]*)*[。！？]?")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_WORD = re.compile(r"[^\W\d_][\w’'-]*")
_DECISION = re.compile(
    r"\b(decid\w+|agree[ds]?|chose|choose|settled on|let'?s (take|go|use|do|keep|buy|book)|(i|we)('ll| will) "
    r"(take|go|use|keep|buy|book|do)|go with|plan(s|ned)? to|promis\w+|remember|nehmen wir|beschlossen|entschieden|"
    r"décid\w+|decid\w+|acord\w+)\b|决定|就(订|定|选|用|买|去)|说好|约好|记住|選|決め",
    re.IGNORECASE,
)
_REPORTING = frozenset(
    stem(word)
    for word in " ".join(
        (
            "user assistant person people conversation discuss discussed discussing discussion talk talked talking",
            "decide decided decision agree agreed ask asked asking answer answered mention mentioned say said explain",
            "explained suggest suggested recommend recommended want wanted plan planned choose chose chosen topic",
            "summary also use used using various different one two provide provided help helped",
        )
    ).split()
)


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a talk: who said it ("user" or "assistant") and what."""

    role: str
    text: str


def question(turns: Sequence[Turn]) -> str:
    """What the model is asked about these turns."""
    lines = [f"{'User' if turn.role == 'user' else 'Assistant'}: {_cut(turn.text, _MOST_OF_A_TURN)}" for turn in turns]
    return ASKED.format(talk="\n".join(lines))


def fault(summary: str, turns: Sequence[Turn]) -> str:
    """Why a summary is not to be believed, in a few words; "" when it is."""
    text = summary.strip()
    if not _SHORTEST <= len(text.encode()) <= _LONGEST:
        return "it is too short or too long"
    if _SPEAKER.search(text):
        return "it goes on with the talk"
    words = tokens(text)
    if _loops(words):
        return "it repeats itself"
    talk = "\n".join(turn.text for turn in turns)
    said = set(tokens(talk))
    told = [term for term in content_terms(text) if term not in _REPORTING]
    if not told or sum(term in said for term in told) < _LEAST_GROUNDED * len(told):
        return "its words are not those of the talk"
    if not set(_NUMBER.findall(text)) <= set(_NUMBER.findall(talk)):
        return "it names a number that nobody said"
    if not _names(text) <= {fold(word) for word in _WORD.findall(talk)}:
        return "it names something that nobody named"
    if not _joined(text, turns):
        return "it joins what nobody said together"
    if any(_copied(words, tokens(turn.text)) for turn in turns):
        return "it is a line of the talk"
    return ""


def extract(turns: Sequence[Turn]) -> str:
    """The talk in its own words: sentences in which something was decided, what the person began with each time, and
    the words that were said most."""
    asked = [sentences[0] for turn in turns if turn.role == "user" and (sentences := _sentences(turn.text))]
    decided = [s for turn in turns if turn.role == "user" for s in _sentences(turn.text) if _DECISION.search(s)]
    order = {sentence: n for n, sentence in enumerate(s for turn in turns for s in _sentences(turn.text))}
    chosen: list[str] = []
    for sentence in dict.fromkeys([*decided, *asked]):
        if sum(map(len, chosen)) + len(sentence) <= _MOST_QUOTED or not chosen:
            chosen.append(sentence)
    if not chosen:
        chosen = [s for turn in turns for s in _sentences(turn.text)[:1]][:2] or [turns[0].text]
    chosen.sort(key=lambda sentence: order.get(sentence, 0))
    quoted = " ".join(_cut(sentence, _MOST_OF_A_SENTENCE) for sentence in chosen)
    keys = _key_words(turns, quoted)
    return f"{quoted} ({', '.join(keys)})" if keys else quoted


def digest(summary: str, turns: Sequence[Turn]) -> str:
    """What is kept of a believed summary: with the extract after it, whose words were really said."""
    return f"{' '.join(summary.split())}\n{extract(turns)}"


def _loops(words: Sequence[str]) -> bool:
    runs = Counter(tuple(words[n : n + _REPEATED]) for n in range(len(words) - _REPEATED + 1))
    return any(count > 1 for count in runs.values())


def _names(text: str) -> set[str]:
    """Words with a capital letter that no sentence begins with."""
    found = set[str]()
    for sentence in _SENTENCE.findall(text):
        found.update(fold(word) for word in _WORD.findall(sentence)[1:] if word[0].isupper() and len(word) > 1)
    return {name.removesuffix("'s").removesuffix("’s") for name in found if stem(name) not in _REPORTING}


def _joined(text: str, turns: Sequence[Turn]) -> bool:
    """Whether every number and name stands beside a word that it stands with in the talk. A small model gives one thing
    the number of another: "the code of a spider's life, which is 4719"."""
    told = set(content_terms(text)) - _REPORTING
    words = [term for term in tokens(text) if term in told]
    marks = {term for name in (*_names(text), *_NUMBER.findall(text)) for term in tokens(name)}
    said = [set(tokens(turn.text)) for turn in turns]
    for at, term in enumerate(words):
        beside = [*words[max(0, at - 1) : at], *words[at + 1 : at + 2]]
        if term in marks and beside and not any(term in turn and other in turn for turn in said for other in beside):
            return False
    return True


def _copied(words: Sequence[str], line: Sequence[str]) -> bool:
    """Whether a summary is one line word for word: then it sums up nothing."""
    if len(words) < _REPEATED:
        return False
    said = {tuple(line[n : n + _REPEATED]) for n in range(len(line) - _REPEATED + 1)}
    runs = [tuple(words[n : n + _REPEATED]) for n in range(len(words) - _REPEATED + 1)]
    return sum(run in said for run in runs) >= _MOST_COPIED * len(runs)


def _sentences(text: str) -> list[str]:
    """The sentences of a turn that say something: three words, or four characters of a script without spaces."""
    found = (" ".join(match.split()) for match in _SENTENCE.findall(text))
    return [sentence for sentence in found if len(tokens(sentence)) >= 3]


def _key_words(turns: Sequence[Turn], quoted: str) -> list[str]:
    """Content words said more than once, or names, that the quoted sentences do not hold; as they were written."""
    held = set(tokens(quoted))
    written: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for turn in turns:
        for sentence in _SENTENCE.findall(turn.text):
            for number, word in enumerate(_WORD.findall(sentence)):
                terms = content_terms(word)
                if len(terms) != 1 or not word[0].isascii() or terms[0] in held:
                    continue
                written.setdefault(terms[0], word)
                counts[terms[0]] += 2 if number and word[0].isupper() else 1
    return [written[term] for term, count in counts.most_common(_KEY_WORDS) if count > 1]


def _cut(text: str, limit: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"
