"""The next turn of a chat that is longer than its window: the time to its first token.

Ours recycles pages and reads the new tokens. The peers, as people use them:

- llama.cpp and transformers: the oldest messages are dropped until the rest and an answer fit, and the prompt is read;
  llama.cpp has its system prompt in the cache from the turn before, transformers' `generate` reads all of it.
- llama.cpp with its own context shift: when the context is full, half of it is cut out, whatever was said there, and
  the rest is rotated to where it now stands; what was lost is told to nobody. The turn that has to shift and a turn
  between two shifts (one in about 20 shifts) are measured each; what ours does is the same in every turn.

A window is full all the time in ours, between half and all of it after a shift, and 128 tokens short in the others.
"""

from __future__ import annotations

from pathlib import Path

from tests.bench.cpu import peers
from tests.bench.cpu.ours import engine_of, feed, model_of, open_chat, turn
from tests.bench.cpu.setting import QUESTION, ROOM, ROUNDS, SYSTEM, WINDOW, Figures, text_of
from tests.bench.report import median, ratio

NEW = 8


def measure(file: Path) -> Figures:
    """full_window_ttft: ours in milliseconds, and how many times as long each way of using a peer takes."""
    engine, tokenizer = engine_of(file), model_of(file).tokenizer
    chat = open_chat(engine)
    system, question = tokenizer.encode_plain(SYSTEM), tokenizer.encode_plain(QUESTION)
    said = 0
    while not said or engine.window(chat).evicted < WINDOW // 2:
        said += 1
        feed(engine, chat, f"fed{said}", text_of(said, 2), text_of(said + 1000, 2))
    old = tokenizer.encode_plain(text_of(0, WINDOW // 16))
    filler = old[: WINDOW - ROOM - len(system) - len(question)]
    llama, other = peers.llamacpp(file), peers.transformers(file, [*system, *filler, *question], 0)
    ways: dict[str, list[float]] = {"transformers": []}
    ways |= {name: [] for name in ("llamacpp", "llamacpp_shift", "llamacpp_between_shifts") if llama}
    mine: list[float] = []
    for round_ in range(ROUNDS + 1):
        done = turn(engine, chat, f"{round_}", QUESTION, NEW)
        cut = round_ * 24  # what was dropped since the round before
        prompt = [*system, *filler[cut:], *filler[:cut], *question]
        taken = {"transformers": other.answer(prompt).read}
        for peer in llama:
            taken["llamacpp"] = peer.answer(prompt).read
            peer.answer([*prompt, *filler[: WINDOW - len(prompt)]])  # to the brim
            for name, shifts in (("llamacpp_shift", 1), ("llamacpp_between_shifts", 0)):
                taken[name], shifted = peer.call("next_turn", tokens=question, keep=len(system))
                assert shifted == shifts
        if round_:
            mine.append(done.first)
            for name, seconds in taken.items():
                ways[name].append(seconds)
        shown = "; ".join(f"{name} {1000 * seconds:.0f} ms" for name, seconds in taken.items())
        print(f"round {round_}: ours {1000 * done.first:.0f} ms for {done.tokens} tokens; {shown}", flush=True)
    for peer in (*llama, other):
        peer.close()
    figures = {"full_window_ttft_ms": 1000 * median(mine)}
    return figures | {f"full_window_ttft_vs_{name}": ratio(seconds, mine) for name, seconds in ways.items()}
