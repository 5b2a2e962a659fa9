"""Summaries that the engine writes in the background. Runs in the engine's child."""

from __future__ import annotations

from app.host import wire
from app.host.digests import SummariseRequest
from app.host.frames import CallId, Result
from app.host.sampling import FinishReason
from app.host.serve import Channel
from engine import events
from engine.answer import Priority
from engine.engine import Engine
from engine.sampling.params import SamplingParams
from engine.types import EngineError, MessageKey, SessionId

SYSTEM = "You sum up conversations truthfully and briefly."
TEMPLATE_TOKENS = 64
"""What the system prompt and the chat template add to a question, generously."""


class Summaries:
    """The summaries under way, each in a session of its own that is closed with it."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._calls: dict[SessionId, CallId] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def __contains__(self, session: SessionId) -> bool:
        return session in self._calls

    def begin(self, engine: Engine, call: CallId, request: SummariseRequest) -> None:
        """Have the question answered in steps in which nobody waits for an answer. Raises EngineError, doing nothing,
        when it cannot be without cost to the chats."""
        needed = engine.count_tokens(request.question) + TEMPLATE_TOKENS + request.max_tokens
        if needed > engine.config.quota_pages * engine.config.page_size:
            raise EngineError(f"these turns need {needed} tokens, more than the window has: they cannot be summed up")
        if not _has_room(engine):
            raise EngineError("every window is a chat's: allow one more session, or more host_mib")
        session = engine.open_session(SYSTEM)
        try:
            engine.add_user(session, MessageKey("talk"), request.question)
            params = SamplingParams(temperature=0.0, max_tokens=request.max_tokens, end_loops=True)
            engine.generate(session, MessageKey("summary"), params, Priority.BACKGROUND)
        except BaseException:
            engine.close_session(session)
            raise
        self._calls[session] = call

    def cancel_unwanted(self, engine: Engine) -> None:
        """End those that nobody waits for any more."""
        for session, call in self._calls.items():
            if self._channel.cancelled(call):
                engine.cancel(session)

    def tell(self, engine: Engine, event: events.EngineEvent) -> None:
        """Pass on what happened to one of them."""
        call = self._calls[event.session]
        match event:
            case events.TextDelta(_, text):
                self._channel.event(call, wire.Delta(text))
            case events.AnswerFinished():
                del self._calls[event.session]
                engine.close_session(event.session)
                self._channel.send(Result(call, finished(event)))

    def fail(self, engine: Engine, error: BaseException) -> None:
        """A step failed: the state of their sessions is unknown."""
        for session, call in list(self._calls.items()):
            del self._calls[session]
            engine.close_session(session)
            self._channel.fail(call, error, (EngineError,))


def finished(event: events.AnswerFinished) -> wire.Finished:
    """The end of an answer as it passes to the UI process."""
    return wire.Finished(
        FinishReason(event.reason.value),
        event.prompt_tokens,
        event.new_tokens,
        event.prefill_seconds,
        event.decode_seconds,
    )


def _has_room(engine: Engine) -> bool:
    """Whether a session more takes nothing from the chats: there is room for it, or the chat unused for longest has an
    image off the device, from which it comes back without being computed again, and is not the only one."""
    if engine.cache.pool.room:
        return True
    config = engine.config
    return config.sessions > 1 and config.host_bytes >= engine.pages.bytes // config.sessions
