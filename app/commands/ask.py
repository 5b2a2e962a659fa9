"""`aios-chat ask`: one question, answered on stdout."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from app.commands.session import Progress, as_json, opened, say
from app.desk import Desk
from app.events import AnswerDelta, AnswerDone, Event, JobChanged, JobPhase, ModelPhase, Notice, Severity
from app.host.sampling import JsonSchema, Regex
from app.ids import ChatId
from app.settings import Settings, SettingsError
from app.store.types import Attachment, Message, MessageStatus

MOST_INLINE = 2000
"""Characters of piped text that go into the question; more becomes a document, as a dropped file does."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What `ask` was given. `piped` is the text on stdin, "" for none."""

    question: str
    piped: str = ""
    chat: str | None = None
    files: tuple[Path, ...] = ()
    json: bool = False
    quiet: bool = False
    bases: tuple[str, ...] = ()
    web: bool = False


def constrained(settings: Settings, json_schema: Path | None, regex: str | None) -> Settings:
    """Settings whose answers are JSON by the schema in a file, or match a pattern. Raises SettingsError."""
    if json_schema is not None and regex is not None:
        raise SettingsError("--json-schema and --regex were both given: an answer can keep to one of them.")
    if regex is not None:
        return replace(settings, constraint=Regex(regex))
    if json_schema is None:
        return settings
    try:
        text = json_schema.expanduser().read_text(encoding="utf-8")
        json.loads(text)
    except OSError as error:
        raise SettingsError(f"{json_schema} cannot be read: {(error.strerror or str(error)).lower()}.") from None
    except ValueError as error:
        raise SettingsError(f"{json_schema} is not a JSON schema: {error}.") from None
    return replace(settings, constraint=JsonSchema(text))


class _Answer:
    """Follows one answer; streams its text to stdout."""

    def __init__(self, stream: bool, stop: Callable[[], None]) -> None:
        self._stream, self._stop = stream, stop
        self.unread = False
        """Whether stdout's reader has gone (head, less); the answer is stopped then."""
        self.message: Message | None = None
        self.failed = False

    def __call__(self, event: Event) -> None:
        match event:
            case AnswerDelta(_, _, text) if self._stream and not self.unread:
                self._write(text)
            case AnswerDone(_, message):
                self.message = message
            case JobChanged(job) if job.phase is JobPhase.FAILED:
                self.failed = True
            case Notice(_, Severity.ERROR):
                self.failed = True

    def _write(self, text: str) -> None:
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            # Raised here it would end the turn half-way; it is raised when the turn is over.
            self.unread = True
            self._stop()


async def ask(settings: Settings, request: Ask) -> int:
    """Ask, stream the answer, name its sources. Raises DeskError; 0 when answered."""
    progress = Progress(request.quiet or request.json)
    async with opened(settings, progress) as desk:
        chat = (await desk.new_chat()).chat.id if request.chat is None else (await desk.find_chat(request.chat)).id
        if request.bases:
            await desk.choose_bases(chat, request.bases)
        await desk.own()
        desk.start_model()
        desk.start_memory()
        attachments = [await desk.attach(chat, path) for path in request.files]
        if request.web:
            await desk.memory_up()
            attachments += await desk.search_web(request.question or request.piped)
        question = request.question
        if request.piped and len(request.piped) > MOST_INLINE:
            attachments.append(await _attach_piped(desk, chat, request.piped))
        elif request.piped:
            question = f"{question}\n\n{request.piped}".strip()
        stopping = asyncio.Event()
        answer = _Answer(not request.json, stopping.set)
        desk.subscribe(answer)
        await desk.model_up()
        progress.clear()
        try:
            await desk.send(chat, question, attachments=tuple(attachments))
            await _settled(desk, chat, stopping)
        except asyncio.CancelledError:
            await desk.stop(chat)
            await desk.settled(chat)
            raise
        if answer.unread:
            raise BrokenPipeError
        for state in desk.models:
            if state.phase is ModelPhase.FAILED:
                say(state.text)
        _show(answer, request, chat)
        if answer.message is not None and all(s.phase is ModelPhase.READY for s in desk.models):
            await desk.indexed()
        good = answer.message is not None and answer.message.status is MessageStatus.COMPLETE
        return 0 if good and not answer.failed else 1


async def _settled(desk: Desk, chat: ChatId, stopping: asyncio.Event) -> None:
    """Wait until the answer is over; stop it when `stopping` is set before."""
    over, stopped = asyncio.ensure_future(desk.settled(chat)), asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait({over, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not over.done():
            await desk.stop(chat)
        await over
    finally:
        over.cancel()
        stopped.cancel()


async def _attach_piped(desk: Desk, chat: ChatId, text: str) -> Attachment:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "stdin.txt"
        await asyncio.to_thread(file.write_text, text, encoding="utf-8")
        return await desk.attach(chat, file)


def _show(answer: _Answer, request: Ask, chat: ChatId) -> None:
    message = answer.message
    if message is None:
        return
    cited = [p for p in message.passages if p.label in message.citations]
    if request.json:
        row = {
            "chat": chat,
            "message": message.id,
            "question": request.question,
            "answer": message.text,
            "status": message.status.value,
            "sources": [{**asdict(p), "place": p.place(), "cited": p in cited} for p in message.passages],
            "figures": message.figures,
        }
        print(as_json(row))
        return
    print()
    if cited and not request.quiet:
        print("\nSources:")
        for passage in cited:
            print(f"  [{passage.label}] {passage.place()}")
