"""The loop: admit, schedule, run, emit. Chats go in as messages, text comes out, inside each chat's quota."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from functools import partial

from torch import Tensor

from engine.admission import Admission
from engine.answer import Answer, Priority, drawn_at_once
from engine.cache.formats.kv_format import page_type
from engine.cache.kv_cache import KvCache
from engine.cache.packed import pages_for
from engine.chat import Chat
from engine.config import EngineConfig
from engine.events import AnswerFinished, EngineEvent, FinishReason, PromptRead, TokensEvicted, WindowState
from engine.look import visible_positions, whole_messages, window_state
from engine.model.load import LoadedModel
from engine.policy import Policy
from engine.reading import Reading
from engine.runner import Ahead, Computed
from engine.runner_graph import runner_for
from engine.sampling.constraint import Constraints
from engine.sampling.params import SamplingParams
from engine.sampling.together import Drawn
from engine.scheduler import Schedule, schedule
from engine.session import Session
from engine.sinks import PinnedMessage, rendered, shape_beside
from engine.stats import EngineStats
from engine.text.template import Piece
from engine.types import EngineError, MessageKey, Position, SessionId
from kernels.runtime import serves

_log = logging.getLogger(__name__)


class Engine:
    """Windowed, paged inference for a few chats on one device. Not thread-safe: one thread calls it."""

    def __init__(self, model: LoadedModel, config: EngineConfig) -> None:
        self.model, self.config = model, config
        shape = model.config
        self.pages = pages_for(
            config.kv_format,
            shape,
            sessions=config.sessions,
            quota_pages=config.quota_pages,
            page_size=config.page_size,
            dtype=page_type(config.kv_format, model.dtype, model.device),
            device=model.device,
        )
        self.cache = KvCache(
            f"{shape.name}|{model.dtype}|{config.kv_format}",
            self.pages,
            sessions=config.sessions,
            quota_pages=config.quota_pages,
            host_images=config.host_bytes // self.pages.page_bytes,
        )
        if config.policy is Policy.SCORED and model.device.type == "cuda":
            _log.warning("scored pages are read by plain torch on a GPU: slower than the kernel for the other policies")
        self._runner = runner_for(model, self.pages, config)
        self._constraints = Constraints(model.tokenizer, shape.vocab, model.stop_ids)
        self._chats: dict[SessionId, Chat] = {}
        self._admission = Admission(self.cache, self._chats)
        self._ids = itertools.count(1)
        self._computed_tokens = 0

    # --- sessions ---

    def open_session(self, system: str, pinned: Sequence[PinnedMessage] = ()) -> SessionId:
        """Begin a chat with `system` and the messages `pinned` to its window, in their order, as its sinks. It is
        admitted, at the cost of exactly its quota, when it answers or is read.

        Raises QuotaError when they leave no room for a ring, or when what is pinned takes more than its share.
        """
        sinks = rendered(self.model, system, pinned)
        shape, name = shape_beside(sinks, self.config), SessionId(next(self._ids))
        session = Session(name, shape, pinned=sinks.spans, policy=self.config.policy)
        session.append(None, sinks.tokens)
        self._chats[session.id] = Chat(session, sinks.users)
        return session.id

    def close_session(self, session: SessionId) -> None:
        """Give all pages of a chat back; a running answer is dropped."""
        chat = self._chat(session)
        del self._chats[session]
        if self.cache.admitted(chat.session):
            self.cache.leave(chat.session)

    def fork(self, session: SessionId, after: MessageKey | None) -> SessionId:
        """Begin a chat with the history of another up to the end of message `after` (None: nothing but the sinks).

        Nothing is computed here: pages are found when the new chat answers. Raises EngineError without such a message.
        """
        chat = self._idle(session)
        end = chat.session.boundary_after(after)
        self.cache.keep_tail(chat.session, end)
        child = chat.session.up_to(SessionId(next(self._ids)), end)
        self._chats[child.id] = Chat(child, [user for user in chat.users if user <= end])
        return child.id

    def rewind(self, session: SessionId, after: MessageKey | None) -> None:
        """Forget what came after message `after` (None: all but the sinks), to regenerate or edit a turn.

        The chat's pages that are still of use are kept. Raises EngineError when there is no such message.
        """
        chat = self._idle(session)
        end = chat.session.boundary_after(after)
        if end == chat.session.end:
            return
        chat.users = [user for user in chat.users if user <= end]
        if self.cache.admitted(chat.session):
            self.cache.keep_tail(chat.session, end)
            self._admission.resume(chat, end)
        else:
            before, chat.session = chat.session, chat.session.up_to(session, end)
            chat.session.tell_on_from(before)

    def swap_out(self, session: SessionId) -> None:
        """Give the chat's pages back; a reading ends. Its history stays; at the next answer, all that it goes on from
        comes back by copy, as far as the host tier holds it, and the rest is computed again."""
        chat = self._idle(session)
        chat.reading = None
        if self.cache.admitted(chat.session):
            self.cache.swap_out(chat.session)

    def admitted(self, session: SessionId) -> bool:
        """Whether the chat holds pages: it answered, and was not swapped out since."""
        return self.cache.admitted(self._chat(session).session)

    def unread(self, session: SessionId) -> int:
        """How many tokens are to be computed before the chat can answer, after what is known of its history."""
        s = self._chat(session).session
        if s.policy is Policy.RECOMPUTE:
            s = s.up_to(s.id, s.end)
        elif self.cache.admitted(s):
            return s.unread
        return s.end - (self.cache.find(s, s.end).position or s.floor - s.shape.sinks)

    def add_user(self, session: SessionId, key: MessageKey, text: str) -> None:
        """Append a user message. Nothing is computed until an answer is asked for."""
        chat = self._idle(session)
        self._append(chat, key, self.model.template.user(first=not chat.users), text)
        chat.users.append(chat.session.end)

    def add_answer(self, session: SessionId, key: MessageKey, text: str) -> None:
        """Append an answer given earlier (a reopened or forked chat)."""
        self._append(self._idle(session), key, self.model.template.answer, text)

    def _append(self, chat: Chat, key: MessageKey, piece: Piece, text: str) -> None:
        content = self.model.template.content(text)
        chat.session.append(key, self.model.tokenizer.encode_message(piece.before, content, piece.after))

    def generate(
        self,
        session: SessionId,
        key: MessageKey,
        params: SamplingParams,
        priority: Priority = Priority.FOREGROUND,
    ) -> None:
        """Begin to answer as message `key`; `step` does the work.

        Raises EngineError when nothing has been said since the last answer, or for a constraint or a token to bias
        that this model cannot follow; QuotaError when the policy is to truncate and the newest message alone does not
        fit; PoolFullError when every admitted chat is answering; of those that are not, the one unused for longest is
        swapped out. An answer in the background waits instead, and makes room for any other.
        """
        chat = self._idle(session)
        opening = self.model.tokenizer.encode(self.model.template.generation)
        if not opening and not chat.session.pending and chat.users[-1:] != [chat.session.end]:
            raise EngineError("there is nothing to answer in this chat: add a message first")
        params.check_vocabulary(self.model.config.vocab)
        matcher = self._constraints.matcher(params.constraint) if params.constraint is not None else None
        chat.session.refuse_pinned(key)
        floor = chat.floor_for(len(opening), params.max_tokens)
        self._admission.enter(chat, priority)
        dropped, ahead = floor != chat.session.floor, not opening and not chat.session.pending
        chat.session.drop_before(floor)
        chat.reading = None
        chat.session.append(key, opening)
        if (dropped or ahead or chat.session.policy is Policy.RECOMPUTE) and self.cache.admitted(chat.session):
            self._admission.resume(chat, chat.session.end)  # what was read ahead is read again, for its last token
        chat.answer = Answer(
            session=chat.session,
            key=key,
            params=chat.fitting(params),
            tokenizer=self.model.tokenizer,
            stop_ids=self.model.stop_ids,
            prompt_tokens=chat.session.unread,
            matcher=matcher,
            go_back=partial(self._go_back, chat),
            priority=priority,
        )

    def read(self, session: SessionId, priority: Priority = Priority.BACKGROUND) -> bool:
        """Begin to compute what waits in the chat, without an answer to it: a window that is rebuilt from text, or a
        long prompt before it is asked for. `step` does the work and tells of it in PromptRead.

        It is in nobody's way: in the background it waits for every answer, and makes room for it; an answer in the
        same chat takes its place; the chat may be added to (that is read as well), forked, rewound and swapped out.
        False, and nothing happens, when nothing waits, or when the policy drops or forgets what is read. Raises
        EngineError while the chat answers; in the foreground, PoolFullError as `generate` does.
        """
        chat = self._idle(session)
        if not chat.session.policy.reads_ahead or not self.unread(session):
            return False
        self._admission.enter(chat, priority)
        chat.reading = Reading(priority)
        return True

    def cancel(self, session: SessionId) -> None:
        """End the running answer before its next token; what was written stays in the window. A reading is over at
        once."""
        chat = self._chat(session)
        chat.reading = None
        if chat.answer is not None:
            chat.answer.cancelled = True

    def _go_back(self, chat: Chat, end: Position) -> Session | None:
        """Forget what was computed from `end` on; the session as it is then, with at least one token to compute.

        None, changing nothing, when more than a page would have to be computed again.
        """
        self.cache.keep_tail(chat.session, end)
        keeps = chat.session.policy is not Policy.RECOMPUTE
        if keeps and end - self.cache.find(chat.session, end).position > self.config.page_size:
            return None
        before = chat.session
        self._admission.resume(chat, end)
        chat.session.told_as(before)  # what is taken back was shown to nobody, and what left for it stays told
        return chat.session

    def _chat(self, session: SessionId) -> Chat:
        if session not in self._chats:
            raise EngineError(f"there is no session {session}")
        return self._chats[session]

    def _idle(self, session: SessionId) -> Chat:
        chat = self._chat(session)
        if chat.answer is not None:
            raise EngineError("this chat is still answering; stop the answer or wait for it")
        return chat

    # --- the loop ---

    @property
    def busy(self) -> bool:
        """True while a chat answers or is read: `step` has work to do."""
        return any(chat.priority is not None for chat in self._chats.values())

    def step(self) -> list[EngineEvent]:
        """One step: cancels, then every decoding chat's next token and one prefill chunk. Answers in the background
        get steps in which no other is waiting, and readings in the background those in which no answer is.

        When the model fails, its error comes through and the step's answers end; their chats can be asked again.
        """
        events: list[EngineEvent] = []
        for chat in list(self._chats.values()):
            if chat.answer is not None and chat.answer.cancelled:
                events += self._end(chat, chat.answer.finish(FinishReason.CANCELLED))
        planned = schedule(
            self._admission.at_work(Priority.FOREGROUND) or self._admission.background(), self.config.chunk_tokens
        )
        if not planned.tokens:
            return events
        planned = self._guessing(planned)
        try:
            for session in planned.decode:
                self.cache.claim(session, 1)
            if planned.prefill is not None:
                self.cache.claim(planned.prefill.session, planned.prefill.count)
            self._computed_tokens += planned.tokens
            done = self._runner.run(planned)
            # Elsewhere than on a GPU the tokens are drawn one by one, where they are needed.
            answers = [self._chats[computed.session.id].answer for computed in done]
            drawn = drawn_at_once(done, answers) if serves(self.model.device) else {}
            for computed in done:
                self.cache.settle(computed.session)
                name = computed.session.id
                events += self._after(self._chats[name], computed, drawn.get(name, []))
        except BaseException:
            self._drop(planned)
            raise
        return events

    def _drop(self, failed: Schedule) -> None:
        """What a failed pass has written over is unknown: its sessions give up what nobody else holds."""
        for chat in [self._chats[session.id] for session in failed.sessions]:
            self.cache.leave(chat.session)
            chat.reading = None
            if chat.answer is not None:
                self._end(chat, [])

    def _after(self, chat: Chat, computed: Computed, drawn: Sequence[Drawn]) -> list[EngineEvent]:
        events: list[EngineEvent] = []
        session, answer = chat.session, chat.answer
        if computed.evicted is not None:
            events.append(TokensEvicted(session.id, computed.evicted))
        if chat.reading is not None:
            events.append(chat.reading.went_on(session, computed.count))
            chat.reading = chat.reading if session.pending else None
        if answer is None:
            return events
        if answer.first_token_at is None:
            events.append(PromptRead(session.id, answer.prompt_tokens - session.unread, answer.prompt_tokens))
        if session.pending:
            return events
        events += self._take(chat, answer, computed.logits, next(iter(drawn), None))
        if computed.ahead is not None:
            events += self._follow(chat, answer, computed.ahead, drawn[1:])
        return events

    def _take(self, chat: Chat, answer: Answer, logits: Tensor, drawn: Drawn | None) -> list[EngineEvent]:
        written = answer.take(logits, drawn)
        chat.measure()
        if any(isinstance(event, AnswerFinished) for event in written):
            return self._end(chat, written)
        if chat.session.policy is Policy.RECOMPUTE:
            self._admission.resume(chat, chat.session.end)
        return written

    def _guessing(self, planned: Schedule) -> Schedule:
        """The step with a guess for the first chat that decodes and has one."""
        guesses = self.config.guess_tokens and self.config.policy.guesses
        for session in planned.decode if guesses else ():
            answer = self._chats[session.id].answer
            guess = answer.guess(self.config.guess_tokens) if answer is not None else []
            if (with_guess := planned.guessing(session, guess)) is not planned:
                return with_guess
        return planned

    def _follow(self, chat: Chat, answer: Answer, ahead: Ahead, drawn: Sequence[Drawn]) -> list[EngineEvent]:
        """Go on over guessed tokens as long as the answer draws them itself; their K and V are computed already."""
        events: list[EngineEvent] = []
        session, first = chat.session, chat.session.position
        rows = zip(ahead.tokens, ahead.logits, ahead.starts, strict=True)
        for (token, logits, start), known in itertools.zip_longest(rows, drawn):
            if chat.answer is not answer or chat.session is not session or session.pending != [token]:
                break
            session.advance(1, start)
            self.cache.settle(session)
            events += self._take(chat, answer, logits, known)
        answer.lookup.judge(len(ahead.tokens), session.position - first)
        return events

    def _end(self, chat: Chat, events: list[EngineEvent]) -> list[EngineEvent]:
        answer = chat.answer
        assert answer is not None
        chat.session.append(answer.key, self.model.tokenizer.encode(self.model.template.answer.after))
        chat.answer = None
        return events

    # --- looking in ---

    def window(self, session: SessionId) -> WindowState:
        """What the model sees in this chat right now."""
        chat = self._chat(session)
        quota_bytes = self.pages.bytes // self.config.sessions
        return window_state(chat.session, quota_bytes, chat.tokens_per_second)

    def whole_messages(self, session: SessionId, ahead: int) -> tuple[MessageKey, ...]:
        """Messages that will be in the window in full once a next message of `ahead` tokens has been read, those that
        wait to be computed included."""
        return whole_messages(self._chat(session), ahead)

    def visible_positions(self, session: SessionId) -> list[Position]:
        """The positions that the last computed token of a session saw."""
        return visible_positions(self._chat(session).session)

    def stats(self) -> EngineStats:
        """Pages by state and format, the windows there are, what is known of past ones and how much computing that
        has saved."""
        pages = self.cache.pool.stats()
        return EngineStats(
            pages=pages,
            kv_format=self.config.kv_format,
            as_computed=self.pages.as_computed(pages.total - pages.free),
            known=self.cache.prefix.stats(),
            page_bytes=self.pages.page_bytes,
            chats=len(self._chats),
            windows=tuple(self.window(session) for session in self._chats if self.admitted(session)),
            computed_tokens=self._computed_tokens,
            found_tokens=self.cache.found_tokens,
        )

    def count_tokens(self, text: str) -> int:
        """Length of a text in the model's own tokens."""
        return len(self.model.tokenizer.encode_plain(text))

    def check(self) -> None:
        """Raise AssertionError when a page is lost, counted twice, or known where it is not."""
        self.cache.check(chat.session for chat in self._chats.values())
