"""Reading a prompt and writing after it: tokens a second, against llama.cpp and transformers.

The three take turns in each round, with the same tokens; a ratio is the median of its rounds'. Ours is measured through
the engine, with its sampling and its text; the peers' forward passes alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.cpu import peers
from tests.bench.cpu.ours import engine_of, model_of, open_chat, turn
from tests.bench.cpu.setting import ROUNDS, Figures, text_of
from tests.bench.report import median, ratio

LONG, SHORT, NEW = 1024, 32, 32


@dataclass(slots=True)
class Times:
    """Seconds, one a round: to read the long prompt, for the new tokens after it, and for those after a short one."""

    prefill: list[float] = field(default_factory=list)
    decode: list[float] = field(default_factory=list)
    short: list[float] = field(default_factory=list)

    def row(self, name: str, tokens: int) -> str:
        """The newest round in tokens a second."""
        speeds = (tokens / self.prefill[-1], NEW / self.decode[-1], NEW / self.short[-1])
        return "{}: prefill {:.0f} decode {:.1f} short {:.1f}".format(name, *speeds)


def measure(file: Path) -> Figures:
    """decode_1024, decode_short and prefill, each against llama.cpp; decode_vs_transformers; our own speeds."""
    engine, tokenizer = engine_of(file, quota=2 * LONG), model_of(file).tokenizer
    a_sentence = len(tokenizer.encode_plain(text_of(0, 1)))
    texts = [text_of(0, LONG // a_sentence), text_of(0, 1)]
    warm = tokenizer.encode_plain(texts[0])
    others = [*peers.llamacpp(file, 2 * LONG), peers.transformers(file, warm, NEW)]
    mine, theirs = Times(), {peer.name: Times() for peer in others}
    counts: list[int] = []
    for round_ in range(ROUNDS + 1):
        rows = (Times(), {name: Times() for name in theirs}) if round_ == 0 else (mine, theirs)
        prompts: list[list[int]] = []
        for text, decode in ((LONG, rows[0].decode), (SHORT, rows[0].short)):
            words = text_of(round_ + 1, max(1, text // a_sentence))
            chat = open_chat(engine)
            done = turn(engine, chat, "1", words, NEW + 1)
            engine.close_session(chat)
            decode.append(done.more * NEW / done.new)
            if text == LONG:
                rows[0].prefill.append(done.first)
            prompts.append((tokenizer.encode_plain(words) * 2)[: done.tokens])
        counts = [len(prompt) for prompt in prompts]
        for peer in others:
            times = rows[1][peer.name]
            long, short = (peer.answer(prompt, NEW, fresh=True) for prompt in prompts)
            times.prefill.append(long.read)
            times.decode.append(long.more)
            times.short.append(short.more)
        shown = [rows[0].row("ours", counts[0]), *(t.row(name, counts[0]) for name, t in rows[1].items())]
        print(f"round {round_}: " + "; ".join(shown), flush=True)
    for peer in others:
        peer.close()
    return _figures(mine, theirs, counts[0])


def _figures(mine: Times, theirs: dict[str, Times], tokens: int) -> Figures:
    figures = {
        "decode_tok_s": NEW / median(mine.decode),
        "decode_short_tok_s": NEW / median(mine.short),
        "prefill_tok_s": tokens / median(mine.prefill),
    }
    for name, times in theirs.items():
        figures[f"decode_1024_vs_{name}"] = ratio(times.decode, mine.decode)
        figures[f"decode_short_vs_{name}"] = ratio(times.short, mine.short)
        figures[f"prefill_vs_{name}"] = ratio(times.prefill, mine.prefill)
    figures["decode_vs_transformers"] = figures.pop("decode_1024_vs_transformers")
    return figures
