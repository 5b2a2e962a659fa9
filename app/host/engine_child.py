"""The engine's child process: `python -m app.host.engine_child`. One loop: take calls, step, send what happened."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

from app.host import wire
from app.host.digests import SummariseRequest
from app.host.frames import Call, CallId, Result, Stop
from app.host.recall_room import most_recalled
from app.host.sampling import JsonSchema, Regex, Sampling
from app.host.serve import Channel
from app.host.sessions import SessionBook
from app.host.summaries import Summaries, finished
from app.ids import ChatId, MessageId
from app.paths import write_atomically
from engine import events
from engine.cache.formats.kv_format import KvFormat, page_type
from engine.config import EngineConfig
from engine.engine import Engine
from engine.model.linear import WeightForm
from engine.model.load import kernels_compiling, open_model, pick_device, pick_dtype
from engine.plan import planned
from engine.policy import Policy
from engine.sampling import params
from engine.sampling.params import SamplingParams
from engine.types import EngineError, MessageKey, SessionId

_log = logging.getLogger(__name__)

WINDOW_SECONDS = 0.25
"""The meter is told at most this often while text streams."""
TEMPLATE_TOKENS = 16
"""What a chat template writes around a question and before an answer, generously."""
AS_THE_FILE = "auto"
"""What the option `weights` says for no form in particular."""
NICENESS = 5
"""The engine yields to the screen when both want the same core."""


@dataclass(slots=True)
class _Running:
    call: CallId
    request: wire.GenerateRequest
    window_sent: float = 0.0


@dataclass(slots=True)
class _Reading:
    call: CallId
    chat: ChatId


class EngineChild:
    """Owns the engine; everything runs on the main thread."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._engine: Engine | None = None
        self._book: SessionBook | None = None
        self._running: dict[SessionId, _Running] = {}
        self._reading: dict[SessionId, _Reading] = {}
        self._summaries = Summaries(channel)

    def run(self) -> None:
        """Until told to stop."""
        while True:
            envelope = self._channel.receive(timeout=0 if self._running or self._reading or self._summaries else None)
            if isinstance(envelope, Stop):
                return
            if isinstance(envelope, Call):
                self._take(envelope)
                continue
            self._step()

    def _take(self, call: Call) -> None:
        try:
            match call.payload:
                case wire.EngineOptions() as options:
                    self._channel.send(Result(call.id, self._load(options)))
                case wire.GenerateRequest() as request:
                    self._begin(call.id, request)
                case wire.PrepareRequest() as request:
                    self._channel.send(Result(call.id, self._prepare(request)))
                case wire.ReadRequest() as request:
                    self._read(call.id, request)
                case SummariseRequest() as request:
                    self._summaries.begin(self._ready()[0], call.id, request)
                case wire.WindowRequest(chat):
                    self._channel.send(Result(call.id, self._window(chat)))
                case wire.CloseSession(chat):
                    self._close(chat)
                    self._channel.send(Result(call.id, None))
                case other:
                    raise TypeError(f"the engine answers no {type(other).__name__}")
        except Exception as error:
            self._channel.fail(call.id, error, (EngineError,))
        self._end_lost_readings()

    def _load(self, options: wire.EngineOptions) -> wire.EngineReady:
        import torch

        began = time.perf_counter()
        torch.set_num_threads(options.threads)
        device = pick_device(options.device)
        form = None if options.weights == AS_THE_FILE else WeightForm(options.weights)
        opened = open_model(Path(options.model), device=device, dtype=pick_dtype(device), form=form)
        late = kernels_compiling()
        kv_format = KvFormat(options.kv_format)
        config = EngineConfig(
            options.quota_tokens,
            options.page_size,
            options.sessions,
            host_bytes=options.host_bytes,
            guess_tokens=options.guess_tokens,
            kv_format=kv_format,
            policy=Policy(options.policy),
        )
        opened, plan = planned(opened, config)
        self._channel.push(wire.LoadPlan(plan.weights_bytes, plan.kv_bytes + plan.host_bytes, plan.free_bytes))
        plan.check()
        model = opened.load(lambda done, total: self._channel.push(wire.LoadProgress(done, total)))
        model = replace(model, template=model.template.with_thinking(options.thinking))
        self._engine = engine = Engine(model, config)
        self._book = SessionBook(engine)
        write_atomically(Path(options.tokenizer_file), model.tokenizer.to_json())
        weights = model.decoder.weights
        return wire.EngineReady(
            model_name=model.config.name,
            family=model.config.family,
            parameters=weights.parameters,
            weights_bytes=weights.bytes,
            kv_bytes_per_token=model.config.kv_bytes_per_token(
                kv_format, page_type(kv_format, model.dtype, model.device).itemsize
            ),
            quota_tokens=config.quota_pages * config.page_size,
            pool_bytes=engine.pages.bytes,
            device=str(device),
            dtype=str(model.dtype).removeprefix("torch."),
            load_seconds=time.perf_counter() - began,
            free_bytes=plan.free_bytes,
            kernels_late=late or kernels_compiling(),
        )

    def _ready(self) -> tuple[Engine, SessionBook]:
        if self._engine is None or self._book is None:
            raise EngineError("the model is not loaded yet")
        return self._engine, self._book

    def _begin(self, call: CallId, request: wire.GenerateRequest) -> None:
        engine, book = self._ready()
        session = book.prepare(request, frozenset(self._running))
        engine.generate(session, MessageKey(request.answer), sampling_params(request.sampling))
        self._running[session] = _Running(call, request)

    def _read(self, call: CallId, request: wire.ReadRequest) -> None:
        """Rebuild the chat's window in the background. While the chat answers, only see that it can be: the next
        question brings what is pinned with it."""
        engine, book = self._ready()
        if book.session(request.chat) in self._running:
            engine.close_session(book.opened(request))
            self._channel.event(call, wire.PrefillProgress(0, 0))
            self._channel.send(Result(call, None))
            return
        session = book.prepare(request, frozenset(self._running))
        self._end_reading(session, None)
        self._reading[session] = _Reading(call, request.chat)
        self._channel.event(call, wire.PrefillProgress(0, engine.unread(session)))
        if not engine.read(session):
            self._end_reading(session, None)

    def _end_reading(self, session: SessionId, window: wire.WindowView | None) -> None:
        reading = self._reading.pop(session, None)
        if reading is not None:
            self._channel.send(Result(reading.call, window))

    def _end_lost_readings(self) -> None:
        """Answers take the place of readings in their chats, and a chat that begins anew has another session."""
        for session, reading in list(self._reading.items()):
            if session in self._running or self._book is None or self._book.session(reading.chat) != session:
                self._end_reading(session, None)

    def _prepare(self, request: wire.PrepareRequest) -> wire.Prepared:
        engine, book = self._ready()
        session = book.prepare(request, frozenset(self._running))
        ring = engine.window(session).ring_tokens
        block = min(request.block_tokens, most_recalled(ring))
        ahead = engine.count_tokens(request.question) + block + TEMPLATE_TOKENS
        return wire.Prepared(tuple(MessageId(key) for key in engine.whole_messages(session, ahead)), ring)

    def _step(self) -> None:
        engine, _ = self._ready()
        for session, running in self._running.items():
            if self._channel.cancelled(running.call):
                engine.cancel(session)
        for session, reading in list(self._reading.items()):
            if self._channel.cancelled(reading.call):
                engine.cancel(session)
                self._end_reading(session, None)
        self._summaries.cancel_unwanted(engine)
        try:
            happened = engine.step()
        except Exception as error:
            # The sessions' state is unknown now; their chats are fed from text again at the next question.
            _log.exception("a step failed")
            for running in list(self._running.values()):
                self._close(running.request.chat)
                self._channel.fail(running.call, error, (EngineError,))
            for reading in list(self._reading.values()):
                self._close(reading.chat)
            self._summaries.fail(engine, error)
            self._end_lost_readings()
            return
        for event in happened:
            if event.session in self._summaries:
                self._summaries.tell(engine, event)
            else:
                self._tell(event)

    def _tell(self, event: events.EngineEvent) -> None:
        if event.session not in self._running:
            self._tell_reading(self._reading[event.session], event)
            return
        running = self._running[event.session]
        match event:
            case events.PromptRead(_, done, total):
                self._channel.event(running.call, wire.PrefillProgress(done, total))
            case events.TextDelta(_, text):
                self._channel.event(running.call, wire.Delta(text))
                self._send_window(running, time.monotonic() - running.window_sent >= WINDOW_SECONDS)
            case events.TokensEvicted(_, span):
                keys = tuple(MessageId(key) for key in span.messages)
                self._channel.event(running.call, wire.Evicted(span.first, span.last, keys))
                self._send_window(running, True)
            case events.AnswerFinished():
                self._finish(running, event)

    def _tell_reading(self, reading: _Reading, event: events.EngineEvent) -> None:
        if isinstance(event, events.PromptRead):
            self._channel.event(reading.call, wire.PrefillProgress(event.done, event.total))
            if event.done == event.total:
                self._end_reading(event.session, self._window(reading.chat))

    def _finish(self, running: _Running, event: events.AnswerFinished) -> None:
        _, book = self._ready()
        book.answered(running.request.chat, running.request.answer)
        del self._running[event.session]
        self._send_window(running, True)
        self._channel.send(Result(running.call, finished(event)))

    def _send_window(self, running: _Running, due: bool) -> None:
        if due:
            running.window_sent = time.monotonic()
            self._channel.event(running.call, self._window(running.request.chat))

    def _close(self, chat: ChatId) -> None:
        _, book = self._ready()
        session = book.session(chat)
        if session is not None:
            self._running.pop(session, None)
        book.close(chat)

    def _window(self, chat: ChatId) -> wire.WindowView | None:
        if self._engine is None or self._book is None:
            return None
        session = self._book.session(chat)
        if session is None:
            return None
        w, stats = self._engine.window(session), self._engine.stats()
        return wire.WindowView(
            chat=chat,
            quota_tokens=w.quota_tokens,
            sink_tokens=w.sink_tokens,
            pinned_tokens=w.pinned_tokens,
            ring_tokens=w.ring_tokens,
            visible_tokens=w.visible_tokens,
            position=w.position,
            evicted_tokens=w.evicted,
            next_eviction_tokens=w.until_eviction,
            page_size=w.page_size,
            quota_bytes=w.quota_bytes,
            host_bytes=stats.known.image_bytes,
            host_capacity_bytes=stats.known.image_capacity * stats.page_bytes,
            found_tokens=stats.found_tokens,
            format=_format_name(self._engine),
            tokens_per_second=w.tokens_per_second,
            segments=tuple(
                wire.WindowSegment(None if m.key is None else MessageId(m.key), m.visible, m.total, m.pinned)
                for m in w.messages
            ),
        )


def _format_name(engine: Engine) -> str:
    """How full pages are kept, for people: the page format, or the pages' type where nothing is quantised."""
    name = engine.config.kv_format
    as_they_are = name in (KvFormat.AUTO, KvFormat.FULL)
    return str(engine.pages.k.dtype).removeprefix("torch.") if as_they_are else name.value


def sampling_params(sampling: Sampling) -> SamplingParams:
    """The engine's words for it. Raises EngineError for a value that is not allowed."""
    match sampling.constraint:
        case JsonSchema(text):
            constraint: params.Constraint | None = params.JsonSchema(text)
        case Regex(pattern):
            constraint = params.Regex(pattern)
        case None:
            constraint = None
    return SamplingParams(
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        seed=sampling.seed if sampling.seed is not None else int.from_bytes(os.urandom(6)),
        max_tokens=sampling.max_tokens,
        stop=sampling.stop,
        min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        penalty_tokens=sampling.penalty_tokens,
        logit_bias=sampling.logit_bias,
        banned=sampling.banned,
        constraint=constraint,
        end_loops=sampling.end_loops,
    )


if __name__ == "__main__":
    os.nice(NICENESS)
    EngineChild(Channel.from_arguments()).run()
    # Nothing is left to do, and kernels may still be on their way from the disk: an orderly exit would wait for them.
    logging.shutdown()
    os._exit(0)
