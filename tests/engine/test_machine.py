"""Anything a caller may do, in any order, on a tiny model in a small window, against the dense reference."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from engine.answer import Priority
from engine.cache.formats.kv_format import KvFormat, page_format
from engine.config import EngineConfig
from engine.engine import Engine
from engine.events import AnswerFinished, EngineEvent, FinishReason, PromptRead, TextDelta, TokensEvicted
from engine.policy import Policy
from engine.sampling.params import SamplingParams
from engine.session import EvictedSpan, Session
from engine.sinks import PinnedMessage, Role
from engine.types import EngineError, MessageKey, PoolFullError, QuotaError, SessionId
from engine.window import WindowShape
from tests.engine.helpers import one_sentence, poison
from tests.engine.reference import Halved, Packing, reference_logits, visible, visible_after
from tests.engine.reference_scored import scored_reference
from tests.engine.tiny import Tiny

# Logits of two float32 paths differ by less. A value that lies between two levels, or two float16, may fall to either.
CLOSE = {KvFormat.FULL: 1e-4, KvFormat.AUTO: 1e-3, KvFormat.INT8: 0.05, KvFormat.K8V4: 0.2, KvFormat.TQ3: 0.5}

SOME_STOPS = frozenset(range(0, 259, 20))  # a random model ends nothing by itself

texts = st.text(st.sampled_from("ab é👍\n<|im_end|>"), max_size=40)
systems = st.one_of(st.text("s ", max_size=6), st.text("s ", max_size=6), st.text("s ", max_size=80))
sampling = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.0, 1.0]),
    top_k=st.sampled_from([0, 3]),
    seed=st.integers(0, 9),
    max_tokens=st.integers(1, 24),
    stop=st.sampled_from([(), ("e",), ("ab", "\n")]),
)
CONFIGS = [
    EngineConfig(quota_tokens=56, page_size=4, sessions=2, chunk_tokens=7, host_bytes=200_000),
    EngineConfig(quota_tokens=71, page_size=8, sessions=3, chunk_tokens=100, kv_format=KvFormat.FULL),
    EngineConfig(quota_tokens=40, page_size=1, sessions=1, chunk_tokens=1, host_bytes=20_000),
    EngineConfig(quota_tokens=96, page_size=16, sessions=2, chunk_tokens=16, host_bytes=50_000),
    EngineConfig(
        56, page_size=4, sessions=2, chunk_tokens=7, host_bytes=200_000, guess_tokens=3, kv_format=KvFormat.INT8
    ),
    EngineConfig(96, page_size=8, sessions=2, chunk_tokens=100, host_bytes=20_000, kv_format=KvFormat.K8V4),
    EngineConfig(72, page_size=4, sessions=3, chunk_tokens=16, host_bytes=50_000, kv_format=KvFormat.TQ3),
    EngineConfig(
        64, page_size=4, sessions=2, chunk_tokens=16, host_bytes=200_000, kv_format=KvFormat.FULL, policy=Policy.SCORED
    ),
    EngineConfig(
        72, page_size=8, sessions=3, chunk_tokens=5, host_bytes=20_000, kv_format=KvFormat.FULL, policy=Policy.SCORED
    ),
    EngineConfig(
        32, page_size=1, sessions=1, chunk_tokens=1, guess_tokens=3, kv_format=KvFormat.FULL, policy=Policy.SCORED
    ),
    EngineConfig(64, page_size=4, sessions=2, chunk_tokens=16, host_bytes=200_000, policy=Policy.TRUNCATE),
    EngineConfig(80, page_size=8, sessions=2, guess_tokens=3, kv_format=KvFormat.INT8, policy=Policy.TRUNCATE),
    EngineConfig(56, page_size=4, sessions=2, chunk_tokens=16, host_bytes=200_000, policy=Policy.RECOMPUTE),
    EngineConfig(64, page_size=8, sessions=1, guess_tokens=3, kv_format=KvFormat.INT8, policy=Policy.RECOMPUTE),
]

SPEAKERS = {Role.USER: "user", Role.ANSWER: "assistant"}


def rendered_length(speaker: str, text: str) -> int:
    """Tokens of a message: each of its bytes, and the two special tokens around it."""
    return len(f"<{speaker}\n{text}>\n".encode())


@dataclass
class Running:
    """An answer being written: where its tokens begin, and what it has shown."""

    key: MessageKey
    params: SamplingParams
    prompt_tokens: int
    priority: Priority
    deltas: list[str] = field(default_factory=list)
    cancelled: bool = False
    most_tokens: int = 0


@dataclass
class Chat:
    """What the test knows about a session. `sinks` counts the tokens of `system` and of `pinned`; `said` are all
    messages."""

    sinks: int
    system: str
    pinned: list[PinnedMessage] = field(default_factory=list)
    said: list[PinnedMessage] = field(default_factory=list)
    running: Running | None = None
    reading: Priority | None = None
    next_evicted: int = 0
    gone: list[str] = field(default_factory=list)
    told: set[int] = field(default_factory=set)
    seen: Session | None = None
    seen_at: int = 0

    @property
    def pinned_keys(self) -> set[str]:
        """Of the messages among the sinks."""
        return {message.key for message in self.pinned}

    @property
    def turn(self) -> int | None:
        """0 goes before 1, and that before 2: in front, answering in the background, being read there."""
        if self.running:
            return None if self.running.cancelled else int(self.running.priority is Priority.BACKGROUND)
        return None if self.reading is None else 2 * int(self.reading is Priority.BACKGROUND)


class EngineMachine(RuleBasedStateMachine):
    """Calls the public methods; after each, nothing is lost, told twice, or read from a slot that nobody sees."""

    def __init__(self, tiny: Tiny, configs: list[EngineConfig]) -> None:
        super().__init__()
        self.tiny, self.configs = tiny, configs
        self.model = replace(tiny.ours, stop_ids=SOME_STOPS)
        self.chats: dict[SessionId, Chat] = {}
        self.history: dict[int, list[tuple[str | None, int]]] = defaultdict(list)
        self.messages = 0
        history, append = self.history, Session.append

        def recording(session: Session, key: MessageKey | None, tokens: list[int]) -> None:
            append(session, key, tokens)
            history[session.id] += [(key, token) for token in tokens]

        self.recorder = patch.object(Session, "append", recording)
        self.recorder.start()

    def teardown(self) -> None:
        try:
            self.finish_everything()
            for session in list(self.chats):
                self.engine.close_session(session)
            self.engine.check()
            assert len(self.engine.cache.pool.free) == self.engine.cache.pool.total
        finally:
            self.recorder.stop()

    # --- what a caller may do ---

    @initialize(data=st.data())
    def load(self, data: st.DataObject) -> None:
        self.engine = Engine(self.model, data.draw(st.sampled_from(self.configs)))
        pages = self.engine.pages
        pages.k.fill_(float("nan"))
        pages.v.fill_(float("nan"))
        self.memory = (pages.k.data_ptr(), pages.v.data_ptr(), pages.k.shape, pages.v.shape)

    @precondition(lambda self: len(self.chats) < self.engine.config.sessions + 2)
    @rule(system=systems, pinned=st.lists(st.tuples(st.sampled_from(Role), texts), max_size=2))
    def open_session(self, system: str, pinned: list[tuple[Role, str]]) -> None:
        self.opened(system, [PinnedMessage(self.key(), role, text) for role, text in pinned])

    def opened(self, system: str, pinned: list[PinnedMessage]) -> SessionId | None:
        """A new session; None when its sinks leave too little of the quota to the ring, and it was refused."""
        page, pages = self.engine.config.page_size, self.engine.config.quota_tokens // self.engine.config.page_size
        alone = rendered_length("system", system)
        taken = sum(rendered_length(SPEAKERS[message.role], message.text) for message in pinned)
        if pages - -(-(alone + taken) // page) < 2 or taken > pages * page // 2:
            self.refused(QuotaError, partial(self.engine.open_session, system, pinned))
            return None
        session = self.engine.open_session(system, pinned)
        assert session not in self.chats
        self.chats[session] = Chat(alone + taken, system, pinned, list(pinned), next_evicted=alone + taken)
        assert self.engine.window(session).sink_tokens == alone + taken
        assert self.engine.window(session).pinned_tokens == taken
        return session

    @precondition(lambda self: self.chats)
    @rule(data=st.data(), priority=st.sampled_from(Priority))
    def pin(self, data: st.DataObject, priority: Priority) -> None:
        """The same messages, others of them pinned: a session that is fed from text and read before it is asked."""
        before = self.pick(data)
        chat = self.chats[before]
        if chat.running:
            return
        chosen = data.draw(st.lists(st.sampled_from(chat.said), max_size=2, unique=True)) if chat.said else []
        pinned = [message for message in chat.said if message in chosen]
        session = self.opened(chat.system, pinned)
        if session is None:
            return
        for message in chat.said:
            if message not in pinned:
                self.add(session, message)
        self.engine.close_session(before)
        del self.chats[before]
        self.begin_reading(session, priority)

    @precondition(lambda self: self.chats)
    @rule(data=st.data(), text=texts, answer=st.booleans())
    def say(self, data: st.DataObject, text: str, answer: bool) -> None:
        session = self.pick(data)
        chat, message = self.chats[session], PinnedMessage(self.key(), Role.ANSWER if answer else Role.USER, text)
        if chat.running:
            self.refused(EngineError, partial(self.add, session, message))
        elif chat.pinned and data.draw(st.booleans()):
            self.refused(EngineError, partial(self.add, session, chat.pinned[-1]))
        else:
            self.add(session, message)

    def add(self, session: SessionId, message: PinnedMessage) -> None:
        add = self.engine.add_answer if message.role is Role.ANSWER else self.engine.add_user
        add(session, message.key, message.text)
        self.chats[session].said.append(message)

    @precondition(lambda self: self.chats)
    @rule(data=st.data(), priority=st.sampled_from(Priority))
    def read(self, data: st.DataObject, priority: Priority) -> None:
        self.begin_reading(self.pick(data), priority)

    def begin_reading(self, session: SessionId, priority: Priority) -> None:
        if self.chats[session].running:
            self.refused(EngineError, partial(self.engine.read, session, priority))
        elif self.engine.config.policy in (Policy.TRUNCATE, Policy.RECOMPUTE):
            assert not self.engine.read(session, priority)
        elif priority is Priority.FOREGROUND and not self.admitted(session) and self.full():
            self.refused(PoolFullError, partial(self.engine.read, session, priority))
        else:
            waits = self.engine.unread(session) > 0
            assert self.engine.read(session, priority) == waits
            self.chats[session].reading = priority if waits else None

    @precondition(lambda self: self.chats)
    @rule(data=st.data(), params=sampling, priority=st.sampled_from([*Priority, Priority.FOREGROUND]))
    def generate(self, data: st.DataObject, params: SamplingParams, priority: Priority) -> None:
        session = self.pick(data)
        chat = self.chats[session]
        if chat.running:
            self.refused(EngineError, partial(self.engine.generate, session, self.key(), params))
        elif priority is Priority.FOREGROUND and not self.admitted(session) and self.full():
            self.refused(PoolFullError, partial(self.engine.generate, session, self.key(), params))
        elif not self.fits(session, params):
            self.refused(QuotaError, partial(self.engine.generate, session, self.key(), params, priority))
        else:
            key = self.key()
            self.engine.generate(session, key, params, priority)
            end, most = len(self.history[session]), params.max_tokens
            prompt = end - self.engine.window(session).position
            if self.engine.config.policy is Policy.TRUNCATE:
                most = min(most, self.holds(session, self.engine._chats[session].session.floor) - end)
            chat.running, chat.reading = Running(key, params, prompt, priority, most_tokens=most), None

    @precondition(lambda self: self.chats)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        session = self.pick(data)
        self.engine.cancel(session)
        self.chats[session].reading = None
        if self.chats[session].running:
            self.chats[session].running.cancelled = True

    @precondition(lambda self: 0 < len(self.chats) < self.engine.config.sessions + 2)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        session = self.pick(data)
        if self.chats[session].running:
            self.refused(EngineError, partial(self.engine.fork, session, None))
            return
        for key in (MessageKey("never said"), *(message.key for message in self.chats[session].pinned)):
            self.refused(EngineError, partial(self.engine.fork, session, key))
        after = self.pick_message(data, session)
        child = self.engine.fork(session, after)
        chat = self.chats[session]
        self.chats[child] = Chat(chat.sinks, chat.system, chat.pinned, next_evicted=chat.sinks)
        self.cut(session, child, after)

    @precondition(lambda self: self.chats)
    @rule(data=st.data())
    def rewind(self, data: st.DataObject) -> None:
        session = self.pick(data)
        if self.chats[session].running:
            self.refused(EngineError, partial(self.engine.rewind, session, None))
            return
        for key in (MessageKey("never said"), *(message.key for message in self.chats[session].pinned)):
            self.refused(EngineError, partial(self.engine.rewind, session, key))
        after = self.pick_message(data, session)
        self.engine.rewind(session, after)
        self.cut(session, session, after)

    @precondition(lambda self: self.chats)
    @rule(data=st.data())
    def swap_out(self, data: st.DataObject) -> None:
        session = self.pick(data)
        if self.chats[session].running:
            self.refused(EngineError, partial(self.engine.swap_out, session))
            return
        before, admitted = self.engine.window(session), self.admitted(session)
        self.engine.swap_out(session)
        self.chats[session].reading = None
        assert self.engine.window(session) == before
        assert 0 <= self.engine.unread(session) <= len(self.history[session])
        waiting = len(self.history[session]) - before.position
        keeps = self.engine.config.policy is not Policy.RECOMPUTE and before.position >= before.sink_tokens
        if admitted and waiting and keeps and self.holds_a_window():
            assert self.engine.unread(session) <= waiting  # another chat may have computed more of the same text

    @precondition(lambda self: self.chats and self.messages % 3 == 0)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        session = self.pick(data)
        self.engine.close_session(session)
        del self.chats[session]
        self.refused(EngineError, partial(self.engine.window, session))

    @precondition(lambda self: self.engine.busy)
    @rule(times=st.integers(1, 20))
    def step(self, times: int) -> None:
        for _ in range(times):
            self.one_step()

    @precondition(lambda self: self.engine.busy)
    @rule()
    def finish_everything(self) -> None:
        for _ in range(2000):
            if not self.engine.busy:
                break
            self.one_step()
        assert not self.engine.busy

    # --- what must hold ---

    def one_step(self) -> None:
        turns = {session: turn for session, chat in self.chats.items() if (turn := chat.turn) is not None}
        for event in self.engine.step():
            assert turns.get(event.session, -1) in (-1, min(turns.values(), default=-1))
            self.seen(event)
        self.poison()

    def seen(self, event: EngineEvent) -> None:
        chat = self.chats[event.session]
        match event:
            case TokensEvicted(session, span) if self.engine.config.policy is Policy.SCORED:
                self.seen_scored(session, chat, span)
            case TokensEvicted(session, span):
                assert span.first == chat.next_evicted
                assert span.last >= span.first
                chat.next_evicted = span.last + 1
                chat.gone += span.messages
                assert chat.gone == self.keys_before(session, chat.next_evicted)
            case PromptRead(session, done, total):
                assert 0 < done <= total
                if chat.running:
                    chat.running.prompt_tokens = total
                else:
                    assert chat.reading
                    assert total - done == self.engine.unread(session)
                    chat.reading = chat.reading if done < total else None
            case TextDelta(_, text):
                assert chat.running
                assert text
                assert not chat.running.cancelled
                chat.running.deltas.append(text)
            case AnswerFinished():
                assert chat.running
                self.finished(event, chat, chat.running)
                chat.said.append(PinnedMessage(chat.running.key, Role.ANSWER, event.text))
                chat.running = None

    def seen_scored(self, session: SessionId, chat: Chat, span: EvictedSpan) -> None:
        """Pages go in any order; none of their positions is visible any more, or was told while it was not."""
        positions = set(range(span.first, span.last + 1))
        self.take_up_told(session, positions)
        assert positions
        assert positions.isdisjoint(chat.told)
        chat.told |= positions
        visible = set(self.engine.visible_positions(session))
        keys = [key for key in self.keys_before(session, len(self.history[session])) if key not in chat.pinned_keys]
        here = [key for key in keys if positions & (at := self.places(session, key)) and not at & visible]
        position = self.engine.window(session).position
        assert list(span.messages) == [key for key in here if max(self.places(session, key)) < position]

    def finished(self, event: AnswerFinished, chat: Chat, running: Running) -> None:
        history = self.history[event.session]
        closing = len(self.tiny.ours.tokenizer.encode("<|im_end|>\n"))
        tokens = [token for _, token in history[:-closing]]
        written = tokens[len(tokens) - event.new_tokens :] if event.new_tokens else []
        assert event.text == "".join(running.deltas)
        assert event.new_tokens <= running.params.max_tokens
        assert (event.reason is FinishReason.CANCELLED) == running.cancelled
        assert event.prompt_tokens <= running.prompt_tokens
        if event.reason is FinishReason.LENGTH:
            assert event.new_tokens == running.most_tokens
        self.check_text(event, written, running)
        self.check_draws(event, tokens, len(written), running, chat)

    def check_text(self, event: AnswerFinished, written: list[int], running: Running) -> None:
        whole = self.tiny.ours.tokenizer.decode(written)
        assert whole.startswith(event.text)
        rest = whole[len(event.text) :]
        if event.reason is FinishReason.STOP and rest.strip("�"):
            assert rest.startswith(running.params.stop)
        else:
            assert not rest.strip("�")
        assert not any(stop in event.text for stop in running.params.stop)

    def check_draws(self, event: AnswerFinished, tokens: list[int], written: int, running: Running, chat: Chat) -> None:
        want = self.logits(event.session, tokens, len(tokens) - written - 1)
        if not want:
            return
        for t in range(len(tokens) - written, len(tokens)):
            assert self.may_draw(want[t - 1], tokens[t], running.params)
        if event.reason is FinishReason.STOP and not running.params.stop:
            assert any(self.may_draw(want[len(tokens) - 1], stop, running.params) for stop in SOME_STOPS)

    def logits(self, session: SessionId, tokens: list[int], first: int) -> dict[int, torch.Tensor]:
        """The reference's logits at the positions from `first` on; none where two pages are as good as equal."""
        chat = self.engine._chats[session].session
        shape, starts = chat.shape, self.message_starts(session)
        if self.engine.config.policy is Policy.SCORED:
            sizes = {"sinks": shape.sinks, "page": shape.page_size, "ring": shape.ring_pages}
            scored = scored_reference(self.tiny.theirs, tokens, **sizes)
            return dict(enumerate(scored.logits)) if scored.margin > 1e-4 else {}
        windows: dict[int, int | None]
        match self.engine.config.policy:
            case Policy.ROUND_ROBIN:
                windows = dict.fromkeys(range(first, len(tokens)))
            case Policy.TRUNCATE:
                windows = dict.fromkeys(range(first, len(tokens)), chat.floor)
            case Policy.RECOMPUTE:
                windows = {t: self.ring_begins(shape, t, starts) for t in range(first, len(tokens))}
        want: dict[int, torch.Tensor] = {}
        for floor in set(windows.values()):
            see = None if floor is None else partial(visible_after, floor, sinks=shape.sinks)
            logits = reference_logits(
                self.tiny.theirs,
                tokens,
                sinks=shape.sinks,
                page=shape.page_size,
                ring=shape.ring_pages,
                message_starts=starts,
                packing=self.packing(),
                see=see,
            )
            want |= {t: logits[t] for t, window in windows.items() if window == floor}
        return want

    def holds(self, session: SessionId, first: int) -> int:
        """Where the ring is full when it holds all from `first` on."""
        shape = self.engine._chats[session].session.shape
        return first - (first - shape.sinks) % shape.page_size + shape.ring_pages * shape.page_size

    def fits(self, session: SessionId, params: SamplingParams) -> bool:
        """Whether the newest message can be answered; only where the policy is to truncate is there none that can't."""
        shape, starts = self.engine._chats[session].session.shape, self.message_starts(session)
        newest = starts[-1] if starts else shape.sinks
        opening = len(self.tiny.ours.tokenizer.encode("<|im_start|>assistant\n"))
        room = min(params.max_tokens, max(1, shape.ring_pages * shape.page_size // 4))
        fitting = len(self.history[session]) + opening + room <= self.holds(session, newest)
        return fitting or self.engine.config.policy is not Policy.TRUNCATE

    def packing(self) -> Packing | Halved | None:
        if self.engine.config.kv_format is KvFormat.AUTO:
            return Halved()
        pages, chosen = self.engine.pages, page_format(self.engine.config.kv_format, self.tiny.ours.config.head_dim)
        return None if chosen is None else Packing(chosen, pages.kept_pages)

    def may_draw(self, logits: torch.Tensor, token: int, params: SamplingParams) -> bool:
        rank = 1 if params.temperature == 0 else params.top_k or len(logits)
        return float(logits[token]) > float(logits.topk(rank).values[-1]) - CLOSE[self.engine.config.kv_format]

    @invariant()
    def pages_add_up(self) -> None:
        self.engine.check()
        pages, stats = self.engine.pages, self.engine.cache.pool.stats()
        assert (pages.k.data_ptr(), pages.v.data_ptr(), pages.k.shape, pages.v.shape) == self.memory
        assert stats.free + stats.private + stats.shared == stats.total == pages.count
        assert self.engine.busy == any(chat.running or chat.reading for chat in self.chats.values())
        admitted = sum(self.admitted(session) for session in self.chats)
        assert admitted + self.engine.cache.pool.room == self.engine.config.sessions

    @invariant()
    def windows_add_up(self) -> None:
        for session, chat in self.chats.items():
            window = self.engine.window(session)
            assert sum(message.visible for message in window.messages) == window.visible_tokens
            assert window.visible_tokens == window.position - window.evicted
            assert window.visible_tokens == len(self.engine.visible_positions(session))
            assert window.visible_tokens <= window.quota_tokens <= self.engine.config.quota_tokens
            assert window.position <= len(self.history[session])
            assert window.until_eviction >= 0
            pinned, ring = window.messages[1 : len(chat.pinned) + 1], window.messages[len(chat.pinned) + 1 :]
            assert [(m.key, m.pinned) for m in pinned] == [(message.key, True) for message in chat.pinned]
            assert sum(m.total for m in pinned) == window.pinned_tokens
            assert window.messages[0].total + window.pinned_tokens == window.sink_tokens == chat.sinks
            assert set(self.engine.whole_messages(session, 5)) >= {message.key for message in chat.pinned}
            assert all(0 < message.visible <= message.total and not message.pinned for message in ring)
            shown = {message.key for message in ring}
            if self.engine.config.policy is Policy.SCORED:
                self.told_adds_up(session, chat, shown)
            else:
                self.told_in_order_adds_up(session, chat, shown)

    def told_in_order_adds_up(self, session: SessionId, chat: Chat, shown: set[MessageKey | None]) -> None:
        window = self.engine.window(session)
        told = window.evicted <= chat.next_evicted - chat.sinks
        assert told or self.came_back(session), "what left the window when a chat came back is told with its next token"
        gone = self.keys_before(session, chat.sinks + window.evicted)
        assert shown.isdisjoint(gone)
        assert set(gone) <= set(chat.gone) or not told
        computed = {key for key, _ in self.history[session][: window.position] if key is not None}
        if window.position > chat.sinks + window.evicted:  # else nothing of the ring is computed yet
            assert shown | set(gone) == computed

    def told_adds_up(self, session: SessionId, chat: Chat, shown: set[MessageKey | None]) -> None:
        self.take_up_told(session, set())
        visible = set(self.engine.visible_positions(session))
        assert set(range(chat.sinks, self.engine.window(session).position)) - visible <= chat.told
        seen = {key for t, (key, _) in enumerate(self.history[session]) if t in visible and t >= chat.sinks}
        assert shown == seen

    # --- helpers ---

    def poison(self) -> None:
        admitted = [chat.session for chat in self.engine._chats.values() if self.admitted(chat.session.id)]
        poison(self.engine.pages, admitted, self.engine.cache.prefix.resident)

    def admitted(self, session: SessionId) -> bool:
        return self.engine.cache.admitted(self.engine._chats[session].session)

    def holds_a_window(self) -> bool:
        """Whether the host tier has room for all that one chat goes on from; a page as computed takes several parts."""
        pages, config = self.engine.pages, self.engine.config
        parts = -(-pages.k.nbytes * 2 // pages.k.shape[2] // pages.page_bytes)
        return config.host_bytes // pages.page_bytes >= config.quota_pages * parts

    def full(self) -> bool:
        """Whether chats at work that wait for nobody hold all the room there is."""
        work = [chat.running.priority if chat.running else chat.reading for chat in self.chats.values()]
        return work.count(Priority.FOREGROUND) == self.engine.config.sessions

    def cut(self, session: SessionId, other: SessionId, after: MessageKey | None) -> None:
        """`other` has the history of `session` up to the end of a message."""
        history, keys = self.history[session], [key for key, _ in self.history[session]]
        chat = self.chats[session]
        end = chat.sinks if after is None else len(keys) - keys[::-1].index(after)
        self.history[other] = history[:end]
        self.chats[other].said = [said for said in chat.said if said in chat.pinned or said.key in keys[:end]]
        shape = self.engine._chats[other].session.shape
        full = end - (end - shape.sinks) % shape.page_size
        self.chats[other].told = {t for t in chat.told if t < full and other == session}
        left = self.window_begins(other)
        told = self.chats[other].next_evicted if other == session else left
        self.chats[other].next_evicted = min(told, left)
        self.chats[other].gone = self.keys_before(other, self.chats[other].next_evicted)

    def came_back(self, session: SessionId) -> bool:
        """Whether the chat has computed nothing since it was rewound, forked or swapped in."""
        chat, now = self.chats[session], self.engine._chats[session].session
        if chat.seen is not now:
            chat.seen, chat.seen_at = now, now.position
        return now.position == chat.seen_at

    def take_up_told(self, session: SessionId, now: set[int]) -> None:
        """Once a chat came back, what is visible may be told again, and what is not, but for `now`, was told, or had
        left where the chat begins."""
        chat = self.chats[session]
        if chat.seen is self.engine._chats[session].session:
            return
        self.came_back(session)
        visible = set(self.engine.visible_positions(session))
        gone = set(range(chat.sinks, self.engine.window(session).position)) - visible - now
        chat.told = (chat.told | gone) - visible

    def places(self, session: SessionId, key: str) -> set[int]:
        """The positions of a message."""
        return {t for t, (of, _) in enumerate(self.history[session]) if of == key}

    def window_begins(self, session: SessionId) -> int:
        """Where the ring part of the newest token's window begins."""
        held = self.engine._chats[session].session
        if self.engine.config.policy is Policy.TRUNCATE:
            return held.floor
        return self.ring_begins(held.shape, len(self.history[session]) - 1, self.message_starts(session))

    def ring_begins(self, shape: WindowShape, t: int, starts: list[int]) -> int:
        """start(t)."""
        seen = visible(t, shape.sinks, shape.page_size, shape.ring_pages, starts)
        return next((n for n in seen if n >= shape.sinks), shape.sinks)

    def message_starts(self, session: SessionId) -> list[int]:
        starts: dict[str, int] = {}
        for t, (key, _) in enumerate(self.history[session]):
            if key is not None:
                starts.setdefault(key, t)
        return sorted(starts.values())

    def pick_message(self, data: st.DataObject, session: SessionId) -> MessageKey | None:
        return data.draw(st.sampled_from(sorted({key for key, _ in self.history[session]}, key=str)))

    def pick(self, data: st.DataObject) -> SessionId:
        return data.draw(st.sampled_from(sorted(self.chats)))

    def key(self) -> MessageKey:
        self.messages += 1
        return MessageKey(f"m{self.messages}")

    def keys_before(self, session: SessionId, position: int) -> list[str]:
        """Messages, in order, whose every token stands before `position`."""
        last: dict[str, int] = {}
        for t, (key, _) in enumerate(self.history[session]):
            if key is not None:
                last[key] = t
        return [key for key, t in last.items() if t < position]

    def refused(self, error: type[EngineError], call: Any) -> None:
        before = {session: self.engine.window(session) for session in self.chats}
        with pytest.raises(error) as refused:
            call()
        one_sentence(refused.value)
        assert before == {session: self.engine.window(session) for session in self.chats}


def any_order_of_calls(tiny: Tiny, policy: Policy, examples: int) -> None:
    configs = [config for config in CONFIGS if config.policy is policy]
    run_state_machine_as_test(
        partial(EngineMachine, tiny, configs),
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("policy", Policy)
def test_any_order_of_calls(tiny: Tiny, policy: Policy) -> None:
    any_order_of_calls(tiny, policy, 20 if policy is Policy.ROUND_ROBIN else 6)


@pytest.mark.slow
@pytest.mark.parametrize("policy", Policy)
def test_any_order_of_calls_for_longer(tiny: Tiny, policy: Policy) -> None:
    any_order_of_calls(tiny, policy, 500 if policy is Policy.ROUND_ROBIN else 200)
