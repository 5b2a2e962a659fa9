"""What each policy costs and gives, on the starter model: `python -m tests.bench.policies`.

A long text, in messages of 48 tokens, is read in the same quota of about 500 tokens by each policy. Nats: how
surprising each next token is after the first window, on average; once at all positions, once at every 64th, which is as
much of it as recomputing can do. Speed: tokens a second of processor time (one thread, so that what else the machine
does is not in it), one at a time behind the whole text, what the policy reads again for them included.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.cache.formats.kv_format import KvFormat
from engine.cache.kv_cache import KvCache
from engine.cache.packed import pages_for
from engine.model.load import LoadedModel, load_model
from engine.policy import Policy
from engine.runner import EagerRunner
from engine.scheduler import schedule
from engine.session import Session
from engine.truncate import answer_room, kept_from
from engine.types import MessageKey, Position, SessionId
from engine.window import WindowShape
from tests.bench.kv_formats import CHUNK, TEXT, ReadingDecoder
from tests.bench.report import report
from tests.models import starter_file

SHAPE = WindowShape(page_size=32, sinks=40, ring_pages=14)
MESSAGE, EVERY, DECODED = 48, 64, 24


class Reader:
    """One session by itself. `logits` are those after each token, where they were first computed."""

    def __init__(self, model: LoadedModel, policy: Policy) -> None:
        self._decoder = ReadingDecoder(model.decoder.config, model.decoder.weights)
        pages = pages_for(
            KvFormat.FULL,
            model.config,
            sessions=1,
            quota_pages=SHAPE.quota_pages,
            page_size=SHAPE.page_size,
            dtype=model.dtype,
            device=model.device,
        )
        self._cache = KvCache("model", pages, sessions=1, quota_pages=SHAPE.quota_pages, host_images=0)
        self._runner = EagerRunner(self._decoder, pages, model.device)
        self._policy, self._session = policy, Session(SessionId(1), SHAPE, policy=policy)
        self._cache.admit(self._session)
        self.logits: dict[int, Tensor] = {}

    def read(self, tokens: list[int], chunk: int = CHUNK) -> None:
        """Compute these tokens too, what has to be read again for them included."""
        while tokens:
            fitting = self._make_room(len(tokens))
            for token in tokens[:fitting]:
                end = self._session.end
                key = None if end < SHAPE.sinks else MessageKey(str(max(0, end - SHAPE.sinks) // MESSAGE))
                self._session.append(key, [token])
            del tokens[:fitting]
            if self._policy is Policy.RECOMPUTE:
                self._again(self._session.floor)
            self._compute(chunk)

    def _make_room(self, count: int) -> int:
        """How many of `count` tokens can be read now; a truncating window drops messages when it is full."""
        if self._policy is not Policy.TRUNCATE:
            return count
        session = self._session
        room = SHAPE.full_at(session.floor) - session.end
        if not room:
            firsts = [span.first for span in session.messages]
            end = session.end + answer_room(SHAPE, SHAPE.ring_tokens)
            floor = kept_from(SHAPE, session.floor, end, firsts, firsts)
            assert floor is not None
            self._again(floor)
            room = SHAPE.full_at(floor) - session.end
        return min(count, room)

    def _again(self, floor: Position) -> None:
        before = self._session
        before.drop_before(before.floor_at(before.end) if self._policy is Policy.RECOMPUTE else floor)
        self._session = self._cache.resume(before, self._cache.find(before, before.end))

    def _compute(self, chunk: int) -> None:
        while self._session.pending:
            first, planned = self._session.position, schedule([self._session], chunk)
            self._cache.claim(self._session, planned.tokens)
            self._runner.run(planned)
            self._cache.settle(self._session)
            for t, row in enumerate(self._decoder.read.pop(), first):
                self.logits.setdefault(t, row)


@dataclass(frozen=True, slots=True)
class Row:
    """Of one policy: nats a token at all positions (None: too slow) and at every 64th, and tokens a second."""

    policy: Policy
    nats: float | None
    nats_at_some: float
    speed: float


def nats(logits: dict[int, Tensor], tokens: list[int], at: range) -> float:
    """Mean surprise at the token that follows each of these positions."""
    rows = torch.stack([logits[t] for t in at])
    return float(F.cross_entropy(rows, torch.tensor([tokens[t + 1] for t in at])))


def measure(model: LoadedModel, policy: Policy, tokens: list[int]) -> Row:
    """Read the whole text."""
    reader, after = Reader(model, policy), SHAPE.sinks + SHAPE.ring_tokens
    every, some = range(after, len(tokens) - 1), range(after, len(tokens) - 1, EVERY)
    if policy is Policy.RECOMPUTE:
        read = 0
        for t in some:
            reader.read(tokens[read : t + 1])
            read = t + 1
        reader.read(tokens[read:])
    else:
        reader.read(list(tokens))
    # A truncating window reads again once for each quarter of a ring, so it is timed over one.
    decoded = answer_room(SHAPE, SHAPE.ring_tokens) if policy is Policy.TRUNCATE else DECODED
    decoded = 3 if policy is Policy.RECOMPUTE else decoded
    began = time.process_time()
    for token in tokens[:decoded]:
        reader.read([token])
    speed = decoded / (time.process_time() - began)
    all_nats = None if policy is Policy.RECOMPUTE else nats(reader.logits, tokens, every)
    return Row(policy, all_nats, nats(reader.logits, tokens, some), speed)


def table(rows: list[Row], tokens: int) -> str:
    """For docs/engine.md, in Markdown."""
    lines = [
        f"{tokens} tokens, {SHAPE.sinks} sinks, {SHAPE.ring_pages} ring pages of {SHAPE.page_size}",
        "",
        f"| policy | nats a token | at every {EVERY}th token | tokens a second |",
        "|---|---:|---:|---:|",
    ]
    for row in rows:
        nats_at_all = "" if row.nats is None else f"{row.nats:.3f}"
        lines.append(f"| {row.policy} | {nats_at_all} | {row.nats_at_some:.3f} | {row.speed:.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and report."""
    torch.set_num_threads(1)
    model = load_model(starter_file(), device=torch.device("cpu"), dtype=torch.float32)
    tokens = model.tokenizer.encode_plain(TEXT.read_text(encoding="utf-8"))
    rows = []
    for policy in Policy:
        rows.append(measure(model, policy, tokens))
        print(rows[-1], flush=True)
    print(table(rows, len(tokens)))
    for row in rows:
        name = row.policy.replace("-", "_")
        report(**{f"{name}_nats_at_some": row.nats_at_some, f"{name}_tokens_per_second": row.speed})


if __name__ == "__main__":
    main()
