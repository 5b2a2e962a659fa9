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
from engine.sampling.params import SamplingParams
from engine.session import Session
from engine.types import EngineError, MessageKey, PoolFullError, QuotaError, SessionId
from tests.engine.helpers import one_sentence, poison
from tests.engine.reference import Packing, reference_logits, visible
from tests.engine.tiny import Tiny

# Logits of two float32 paths differ by less. A packed value that lies between two levels may fall to either side.
CLOSE = {KvFormat.AUTO: 1e-4, KvFormat.INT8: 0.05, KvFormat.K8V4: 0.2, KvFormat.TQ3: 0.5}

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
configs = st.sampled_from(
    [
        EngineConfig(quota_tokens=56, page_size=4, sessions=2, chunk_tokens=7, host_bytes=200_000),
        EngineConfig(quota_tokens=71, page_size=8, sessions=3, chunk_tokens=100),
        EngineConfig(quota_tokens=40, page_size=1, sessions=1, chunk_tokens=1, host_bytes=20_000),
        EngineConfig(quota_tokens=96, page_size=16, sessions=2, chunk_tokens=16, host_bytes=50_000),
        EngineConfig(
            56, page_size=4, sessions=2, chunk_tokens=7, host_bytes=200_000, guess_tokens=3, kv_format=KvFormat.INT8
        ),
        EngineConfig(96, page_size=8, sessions=2, chunk_tokens=100, host_bytes=20_000, kv_format=KvFormat.K8V4),
        EngineConfig(72, page_size=4, sessions=3, chunk_tokens=16, host_bytes=50_000, kv_format=KvFormat.TQ3),
    ]
)


@dataclass
class Running:
    """An answer being written: where its tokens begin, and what it has shown."""

    params: SamplingParams
    prompt_tokens: int
    priority: Priority
    deltas: list[str] = field(default_factory=list)
    cancelled: bool = False


@dataclass
class Chat:
    """What the test knows about a session."""

    system: int
    keys: list[str] = field(default_factory=list)
    running: Running | None = None
    next_evicted: int = 0
    gone: list[str] = field(default_factory=list)
    seen: Session | None = None
    seen_at: int = 0


class EngineMachine(RuleBasedStateMachine):
    """Calls the public methods; after each, nothing is lost, told twice, or read from a slot that nobody sees."""

    def __init__(self, tiny: Tiny) -> None:
        super().__init__()
        self.tiny = tiny
        self.model = replace(tiny.ours, stop_ids=SOME_STOPS)
        self.chats: dict[SessionId, Chat] = {}
        self.history: dict[int, list[tuple[str | None, int]]] = defaultdict(list)
        self.messages = 0
        history, append = self.history, Session.append

        def recording(session: Session, key: MessageKey | None, tokens: list[int]) -> None:
            history[session.id] += [(key, token) for token in tokens]
            append(session, key, tokens)

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

    @initialize(config=configs)
    def load(self, config: EngineConfig) -> None:
        self.engine = Engine(self.model, config)
        pages = self.engine.pages
        pages.k.fill_(float("nan"))
        pages.v.fill_(float("nan"))
        self.memory = (pages.k.data_ptr(), pages.v.data_ptr(), pages.k.shape, pages.v.shape)

    @precondition(lambda self: len(self.chats) < self.engine.config.sessions + 2)
    @rule(system=systems)
    def open_session(self, system: str) -> None:
        config, tokens = self.engine.config, len(f"<system\n{system}>\n")
        sink_pages = -(-tokens // config.page_size)
        if config.quota_tokens // config.page_size - sink_pages < 2:
            self.refused(QuotaError, partial(self.engine.open_session, system))
        else:
            session = self.engine.open_session(system)
            assert session not in self.chats
            self.chats[session] = Chat(tokens, next_evicted=tokens)
            assert self.engine.window(session).sink_tokens == tokens

    @precondition(lambda self: self.chats)
    @rule(data=st.data(), text=texts, answer=st.booleans())
    def say(self, data: st.DataObject, text: str, answer: bool) -> None:
        session = self.pick(data)
        add = self.engine.add_answer if answer else self.engine.add_user
        if self.chats[session].running:
            self.refused(EngineError, partial(add, session, self.key(None), text))
        else:
            add(session, self.key(session), text)

    @precondition(lambda self: self.chats)
    @rule(data=st.data(), params=sampling, priority=st.sampled_from([*Priority, Priority.FOREGROUND]))
    def generate(self, data: st.DataObject, params: SamplingParams, priority: Priority) -> None:
        session = self.pick(data)
        chat = self.chats[session]
        if chat.running:
            self.refused(EngineError, partial(self.engine.generate, session, self.key(None), params))
        elif priority is Priority.FOREGROUND and not self.admitted(session) and self.full():
            self.refused(PoolFullError, partial(self.engine.generate, session, self.key(None), params))
        else:
            self.engine.generate(session, self.key(session), params, priority)
            prompt = len(self.history[session]) - self.engine.window(session).position
            chat.running = Running(params, prompt, priority)

    @precondition(lambda self: self.chats)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        session = self.pick(data)
        self.engine.cancel(session)
        if self.chats[session].running:
            self.chats[session].running.cancelled = True

    @precondition(lambda self: 0 < len(self.chats) < self.engine.config.sessions + 2)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        session = self.pick(data)
        if self.chats[session].running:
            self.refused(EngineError, partial(self.engine.fork, session, None))
            return
        self.refused(EngineError, partial(self.engine.fork, session, MessageKey("never said")))
        after = self.pick_message(data, session)
        child = self.engine.fork(session, after)
        self.chats[child] = Chat(self.chats[session].system, next_evicted=self.chats[session].system)
        self.cut(session, child, after)

    @precondition(lambda self: self.chats)
    @rule(data=st.data())
    def rewind(self, data: st.DataObject) -> None:
        session = self.pick(data)
        if self.chats[session].running:
            self.refused(EngineError, partial(self.engine.rewind, session, None))
            return
        self.refused(EngineError, partial(self.engine.rewind, session, MessageKey("never said")))
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
        before = self.engine.window(session)
        self.engine.swap_out(session)
        assert self.engine.window(session) == before
        assert 0 <= self.engine.unread(session) <= len(self.history[session])

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
        answers = [c.running for c in self.chats.values() if c.running and not c.running.cancelled]
        front = [running for running in answers if running.priority is Priority.FOREGROUND]
        for event in self.engine.step():
            self.seen(event)
            running = self.chats[event.session].running
            if front and running and not running.cancelled:
                assert running.priority is Priority.FOREGROUND
        self.poison()

    def seen(self, event: EngineEvent) -> None:
        chat = self.chats[event.session]
        match event:
            case TokensEvicted(session, span):
                assert span.first == chat.next_evicted
                assert span.last >= span.first
                chat.next_evicted = span.last + 1
                chat.gone += span.messages
                assert chat.gone == self.keys_before(session, chat.next_evicted)
            case PromptRead(_, done, total):
                assert chat.running
                assert 0 < done <= total
                chat.running.prompt_tokens = total
            case TextDelta(_, text):
                assert chat.running
                assert text
                assert not chat.running.cancelled
                chat.running.deltas.append(text)
            case AnswerFinished():
                assert chat.running
                self.finished(event, chat, chat.running)
                chat.running = None

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
            assert event.new_tokens == running.params.max_tokens
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
        shape = self.engine._chats[event.session].session.shape
        want = reference_logits(
            self.tiny.theirs,
            tokens,
            sinks=chat.system,
            page=shape.page_size,
            ring=shape.ring_pages,
            message_starts=self.message_starts(event.session),
            packing=self.packing(),
        )
        for t in range(len(tokens) - written, len(tokens)):
            assert self.may_draw(want[t - 1], tokens[t], running.params)
        if event.reason is FinishReason.STOP and not running.params.stop:
            assert any(self.may_draw(want[-1], stop, running.params) for stop in SOME_STOPS)

    def packing(self) -> Packing | None:
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
            told = window.evicted <= chat.next_evicted - chat.system
            assert told or self.came_back(session), (
                "what left the window when a chat came back is told with its next token"
            )
            assert window.position <= len(self.history[session])
            assert window.until_eviction >= 0
            assert all(0 < message.visible <= message.total for message in window.messages[1:])
            shown = {message.key for message in window.messages[1:]}
            gone = self.keys_before(session, chat.system + window.evicted)
            assert shown.isdisjoint(gone)
            assert set(gone) <= set(chat.gone) or not told
            computed = {key for key, _ in self.history[session][: window.position] if key is not None}
            assert shown | set(gone) == computed

    # --- helpers ---

    def poison(self) -> None:
        admitted = [chat.session for chat in self.engine._chats.values() if self.admitted(chat.session.id)]
        poison(self.engine.pages, admitted, self.engine.cache.prefix.resident)

    def admitted(self, session: SessionId) -> bool:
        return self.engine.cache.admitted(self.engine._chats[session].session)

    def full(self) -> bool:
        """Whether answers that wait for nobody hold all the room there is."""
        front = [s for s, c in self.chats.items() if c.running and c.running.priority is Priority.FOREGROUND]
        return len(front) == self.engine.config.sessions

    def cut(self, session: SessionId, other: SessionId, after: MessageKey | None) -> None:
        """`other` has the history of `session` up to the end of a message."""
        history, keys = self.history[session], [key for key, _ in self.history[session]]
        system = self.chats[session].system
        end = system if after is None else len(keys) - keys[::-1].index(after)
        self.history[other] = history[:end]
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

    def window_begins(self, session: SessionId) -> int:
        """Where the ring part of the newest token's window begins."""
        shape, last = self.engine._chats[session].session.shape, len(self.history[session]) - 1
        seen = visible(last, shape.sinks, shape.page_size, shape.ring_pages, self.message_starts(session))
        return next((t for t in seen if t >= shape.sinks), shape.sinks)

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

    def key(self, session: SessionId | None) -> MessageKey:
        self.messages += 1
        key = MessageKey(f"m{self.messages}")
        if session is not None:
            self.chats[session].keys.append(key)
        return key

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


def any_order_of_calls(tiny: Tiny, examples: int) -> None:
    run_state_machine_as_test(
        partial(EngineMachine, tiny),
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_any_order_of_calls(tiny: Tiny) -> None:
    any_order_of_calls(tiny, 20)


@pytest.mark.slow
def test_any_order_of_calls_for_longer(tiny: Tiny) -> None:
    any_order_of_calls(tiny, 500)
