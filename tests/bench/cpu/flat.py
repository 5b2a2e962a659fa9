"""Whether a token costs the same however long a chat is.

Two chats live in one engine: one has just filled its window, the other has been through a hundred of them. Both answer
the same questions in turn, with equally many tokens visible to each; what is compared are the medians of their answers.
The window is half of that of the other parts: what grows with a history weighs more where a token costs less.
"""

from __future__ import annotations

from pathlib import Path

from tests.bench.cpu.ours import engine_of, feed, open_chat, turn
from tests.bench.cpu.setting import PAGE, QUESTION, ROUNDS, Figures, text_of
from tests.bench.report import median

QUOTA, WINDOWS, PAIRS, NEW = 512, 100, 5 * ROUNDS, 33


def measure(file: Path) -> Figures:
    """slope_100_windows: time per token after a hundred windows, as a multiple of that after one."""
    engine = engine_of(file, quota=QUOTA)
    near, far = open_chat(engine), open_chat(engine)
    fed = 0
    while fed == 0 or engine.window(near).evicted < PAGE:
        fed += 1
        feed(engine, near, f"fed{fed}", text_of(fed, 2), text_of(fed + 500, 2))
    # Whole pages of tokens apart, so that both chats are as far into the page that they write.
    turns = 0
    while turns < fed or turns % PAGE != fed % PAGE or engine.window(far).position < WINDOWS * QUOTA:
        turns += 1
        feed(engine, far, f"fed{turns}", text_of(turns, 2), text_of(turns + 500, 2))
        if turns % 50 == 0:
            print(f"{engine.window(far).position:,} tokens read of {WINDOWS * QUOTA:,}", flush=True)
    times: dict[int, list[float]] = {near: [], far: []}
    for pair in range(PAIRS + 1):
        for chat in (near, far) if pair % 2 else (far, near):
            done = turn(engine, chat, f"{pair}", QUESTION, NEW)
            if pair:
                times[chat].append(1000 * done.more / done.new)
        seen = [engine.window(chat).visible_tokens for chat in (near, far)]
        assert seen[0] == seen[1], f"the chats see {seen} tokens: they cannot be compared"
    first, last = median(times[near]), median(times[far])
    print(f"{first:.2f} ms a token at {engine.window(near).position:,} tokens, {last:.2f} at", end=" ")
    print(f"{engine.window(far).position:,}, {seen[0]} visible, {PAIRS} pairs of answers")
    return {"slope_100_windows": last / first}
