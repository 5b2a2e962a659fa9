"""A desk in memory that does what a test tells it to: deterministic ids and times, answers streamed on command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from app.drop.fetch import Url
from app.events import (
    AnswerDelta,
    AnswerDone,
    ChatsChanged,
    Event,
    IngestJob,
    JobChanged,
    JobPhase,
    Listener,
    MessageAdded,
    ModelPhase,
    ModelState,
    Part,
    QueueChanged,
    RecallShown,
    WindowChanged,
)
from app.host.documents import DocumentInfo
from app.host.wire import (
    EngineReady,
    Passage,
    Role,
    SearchResult,
    SourceKind,
    WindowSegment,
    WindowView,
)
from app.ids import ChatId, DocumentId, JobId, MessageId
from app.ports import ChatView, DeskError, Dropped
from app.store.types import Attachment, Base, Chat, Figures, Message, MessageStatus

NOON = 1_760_000_000.0
TAIL = 40

ENGINE = EngineReady(
    model_name="SmolLM2-135M-Instruct",
    family="llama",
    parameters=134_515_008,
    weights_bytes=98_000_000,
    kv_bytes_per_token=23_040,
    quota_tokens=512,
    pool_bytes=11_796_480,
    device="cpu",
    dtype="float32",
    load_seconds=1.2,
    free_bytes=8 << 30,
    kernels_late=False,
)
READY = ModelState(Part.MODEL, ModelPhase.READY, "ready", engine=ENGINE)


def passage(label: str, **changes: object) -> Passage:
    """A passage of a PDF."""
    base = Passage(
        id=f"p{label}",
        label=label,
        source_id="d1",
        source_kind=SourceKind.DOCUMENT,
        title="report.pdf",
        text="The turbine hall was moved to the north bank in 1931, after the flood.",
        score=0.82,
        time=NOON,
        path="/home/ada/report.pdf",
        page=2,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


class ScriptedDesk:
    """A DeskPort in memory. `calls` lists what was asked of it."""

    def __init__(self, *, clock: float = NOON) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.listeners: list[Listener] = []
        self.tree: dict[MessageId, Message] = {}
        self.rows: dict[ChatId, Chat] = {}
        self.queues: dict[ChatId, list[tuple[str, tuple[Attachment, ...], MessageId | None]]] = {}
        self.windows: dict[ChatId, WindowView] = {}
        self.chosen: dict[ChatId, tuple[Base, ...]] = {}
        self.running: dict[ChatId, MessageId] = {}
        self.files: dict[str, str] = {}
        """Pasted text → file name, for those that name a file."""
        self.missing: dict[str, str] = {}
        """Pasted text → explanation."""
        self.found: tuple[Passage, ...] = ()
        self.states: tuple[ModelState, ...] = (READY,)
        self.ingests: list[IngestJob] = []
        self.start_error: str | None = None
        self.send_error: str | None = None
        self.pin_error: str | None = None
        self.closed = 0
        self._count = 0
        self._clock = clock

    # --- for the test ---

    def tell(self, event: Event) -> None:
        """Tell every listener."""
        for listener in self.listeners:
            listener(event)

    def _id(self, kind: str) -> str:
        self._count += 1
        self._clock += 60
        return f"{kind}{self._count:04d}"

    def add_chat(self, title: str, texts: list[str], *, forked: MessageId | None = None) -> ChatId:
        """A stored chat with these texts, user and answer by turns."""
        chat = ChatId(self._id("c"))
        head: MessageId | None = None
        self.rows[chat] = Chat(chat, title, self._clock, self._clock, None, forked)
        for index, text in enumerate(texts):
            role = Role.USER if index % 2 == 0 else Role.ASSISTANT
            head = self._put(chat, role, text, head).id
        self._touch(chat, head)
        return chat

    def _put(self, chat: ChatId, role: Role, text: str, parent: MessageId | None, **more: object) -> Message:
        message = Message(
            MessageId(self._id("m")),
            chat,
            parent,
            role,
            text,
            self._clock,
            **more,  # type: ignore[arg-type]
        )
        self.tree[message.id] = message
        return message

    def _touch(self, chat: ChatId, head: MessageId | None) -> None:
        self.rows[chat] = replace(self.rows[chat], head=head, updated=self._clock)
        self.rows[chat] = replace(self.rows[chat], messages=len(self.path(chat)))

    def path(self, chat: ChatId) -> list[Message]:
        """A chat's messages, oldest first."""
        found: list[Message] = []
        at = self.rows[chat].head if chat in self.rows else None
        while at is not None:
            found.append(self.tree[at])
            at = self.tree[at].parent
        return found[::-1]

    def edit(self, message: MessageId, **changes: object) -> Message:
        """Change a stored message."""
        self.tree[message] = replace(self.tree[message], **changes)  # type: ignore[arg-type]
        return self.tree[message]

    def begin_answer(self, chat: ChatId) -> MessageId:
        """An answer begins."""
        answer = self._put(chat, Role.ASSISTANT, "", self.rows[chat].head, status=MessageStatus.STREAMING)
        self._touch(chat, answer.id)
        self.running[chat] = answer.id
        self.tell(MessageAdded(chat, answer))
        return answer.id

    def delta(self, chat: ChatId, text: str) -> None:
        """A piece of the running answer."""
        answer = self.running[chat]
        self.edit(answer, text=self.tree[answer].text + text)
        self.tell(AnswerDelta(chat, answer, text))

    def finish(self, chat: ChatId, **changes: object) -> Message:
        """The running answer ends."""
        answer = self.running.pop(chat)
        facts: dict[str, object] = {
            "status": MessageStatus.COMPLETE,
            "figures": Figures(120, 24, 0.5, 2.0, "SmolLM2"),
        }
        message = self.edit(answer, **(facts | changes))
        self.tell(AnswerDone(chat, message))
        if self.queues.get(chat):
            text, attachments, quote = self.queues[chat].pop(0)
            self._tell_queue(chat)
            self._commit(chat, text, attachments, quote)
        return message

    def recall(self, chat: ChatId, *passages: Passage, scope: str = "documents", reason: str = "") -> None:
        """Recall decided something for the newest user message."""
        user = next(m for m in reversed(self.path(chat)) if m.role is Role.USER)
        self.edit(user.id, passages=passages)
        self.tell(RecallShown(chat, user.id, scope, reason, passages, 0.12))

    def window(self, chat: ChatId, visible: dict[MessageId, int], **changes: object) -> WindowView:
        """The window moved: tokens visible of each message."""
        sinks, quota = 38, 512
        shares = [WindowSegment(m, tokens, max(tokens, 40)) for m, tokens in visible.items()]
        segments = (WindowSegment(None, sinks, sinks), *shares)
        base = WindowView(
            chat=chat,
            quota_tokens=quota,
            sink_tokens=sinks,
            pinned_tokens=0,
            ring_tokens=quota - sinks,
            visible_tokens=sinks + sum(visible.values()),
            position=1_716,
            evicted_tokens=1_204,
            next_eviction_tokens=12,
            page_size=16,
            quota_bytes=11_796_480,
            host_bytes=2_359_296,
            host_capacity_bytes=268_435_456,
            found_tokens=64,
            format="f32",
            tokens_per_second=21.4,
            segments=segments,
        )
        view = replace(base, **changes)  # type: ignore[arg-type]
        self.windows[chat] = view
        self.tell(WindowChanged(chat, view))
        return view

    def job(self, name: str, phase: JobPhase, done: int = 0, total: int = 0, **more: object) -> IngestJob:
        """A file's reading moved on."""
        job = IngestJob(JobId("j" + name), None, name, phase, done, total, **more)  # type: ignore[arg-type]
        self.ingests = [j for j in self.ingests if j.id != job.id] + [job]
        self.tell(JobChanged(job))
        return job

    def _commit(self, chat: ChatId, text: str, attachments: tuple[Attachment, ...], quote: MessageId | None) -> None:
        if chat not in self.rows:
            self.rows[chat] = Chat(chat, text[:40], self._clock, self._clock, None)
        user = self._put(chat, Role.USER, text, self.rows[chat].head, attachments=attachments, quote=quote)
        self._touch(chat, user.id)
        self.tell(MessageAdded(chat, user))
        self.tell(ChatsChanged())

    def _tell_queue(self, chat: ChatId) -> None:
        self.tell(QueueChanged(chat, tuple(text for text, _, _ in self.queues.get(chat, []))))

    # --- DeskPort ---

    def subscribe(self, listener: Listener) -> None:
        self.listeners.append(listener)

    async def start(self) -> None:
        self.calls.append(("start",))
        if self.start_error is not None:
            raise DeskError(self.start_error)
        for state in self.states:
            self.tell(state)

    async def close(self) -> None:
        self.closed += 1

    @property
    def models(self) -> tuple[ModelState, ...]:
        return self.states

    @property
    def jobs(self) -> tuple[IngestJob, ...]:
        return tuple(self.ingests)

    async def chats(self) -> list[Chat]:
        return sorted(self.rows.values(), key=lambda c: -c.updated)

    async def new_chat(self) -> ChatView:
        chat = ChatId(self._id("c"))
        return ChatView(Chat(chat, "", self._clock, self._clock, None), (), 0, None)

    async def open_chat(self, chat: ChatId) -> ChatView:
        if chat not in self.rows:
            raise DeskError(f"There is no chat {chat}; aios-chat chats lists them.")
        path = self.path(chat)
        queue = tuple(text for text, _, _ in self.queues.get(chat, []))
        tail = tuple(path[-TAIL:])
        return ChatView(self.rows[chat], tail, len(path) - len(tail), self.windows.get(chat), queue)

    async def earlier_messages(self, chat: ChatId, before: MessageId, limit: int) -> list[Message]:
        self.calls.append(("earlier", before))
        path = self.path(chat)
        index = [m.id for m in path].index(before)
        return path[max(0, index - limit) : index]

    async def send(
        self,
        chat: ChatId,
        text: str,
        *,
        attachments: tuple[Attachment, ...] = (),
        quote: MessageId | None = None,
    ) -> None:
        self.calls.append(("send", text, tuple(a.name for a in attachments), quote))
        if self.send_error is not None:
            raise DeskError(self.send_error)
        if chat in self.running or any(s.phase is not ModelPhase.READY for s in self.states):
            self.queues.setdefault(chat, []).append((text, attachments, quote))
            self._tell_queue(chat)
        else:
            self._commit(chat, text, attachments, quote)

    async def resume(self, chat: ChatId) -> None:
        self.calls.append(("resume", chat))

    async def unqueue(self, chat: ChatId) -> str | None:
        if not self.queues.get(chat):
            return None
        text = self.queues[chat].pop()[0]
        self._tell_queue(chat)
        return text

    async def stop(self, chat: ChatId) -> bool:
        self.calls.append(("stop", chat))
        if chat not in self.running:
            return False
        self.finish(chat, status=MessageStatus.STOPPED)
        return True

    async def drop(self, chat: ChatId, pasted: str) -> Dropped:
        self.calls.append(("drop", pasted))
        lines = pasted.strip().split("\n")
        if all(line in self.files for line in lines):
            return Dropped(attachments=tuple(self._stage(self.files[line]) for line in lines))
        if pasted in self.missing:
            return Dropped(text=pasted, explanation=self.missing[pasted])
        return Dropped(text=pasted)

    def _stage(self, name: str) -> Attachment:
        self.job(name, JobPhase.WAITING)
        return Attachment(name, f"/home/ada/{name}", f"/staged/{name}", DocumentId("d" + name))

    async def attach(self, chat: ChatId, path: Path | Url) -> Attachment:
        self.calls.append(("attach", str(path)))
        if not isinstance(path, Path):
            return self._stage("page.html")
        if path.name.startswith("missing"):
            raise DeskError(f"There is no file {path}.")
        return self._stage(path.name)

    async def unlock(self, job: JobId, password: str) -> None:
        self.calls.append(("unlock", job, password))

    async def pin(self, chat: ChatId, message: MessageId) -> Message:
        self.calls.append(("pin", chat, message))
        if self.pin_error is not None:
            raise DeskError(self.pin_error)
        return self.edit(message, pinned=True)

    async def unpin(self, chat: ChatId, message: MessageId) -> Message:
        self.calls.append(("unpin", chat, message))
        return self.edit(message, pinned=False)

    async def star(self, message: MessageId, starred: bool) -> Message:
        self.calls.append(("star", message, starred))
        return self.edit(message, starred=starred)

    async def favorites(self) -> list[Message]:
        return sorted((m for m in self.tree.values() if m.starred), key=lambda m: -m.created)

    async def fork(self, chat: ChatId, message: MessageId) -> ChatView:
        self.calls.append(("fork", message))
        fork = ChatId(self._id("c"))
        title = self.rows[chat].title
        self.rows[fork] = Chat(fork, title, self._clock, self._clock, message, message)
        self._touch(fork, message)
        self.tell(ChatsChanged())
        return await self.open_chat(fork)

    async def rename(self, chat: ChatId, title: str) -> None:
        self.calls.append(("rename", title))
        self.rows[chat] = replace(self.rows[chat], title=title)
        self.tell(ChatsChanged())

    async def delete(self, chat: ChatId) -> None:
        self.calls.append(("delete", chat))
        del self.rows[chat]
        self.tell(ChatsChanged())

    async def search(self, query: str, *, kind: SourceKind | None = None, limit: int = 20) -> SearchResult:
        self.calls.append(("search", query))
        if query == "down":
            raise DeskError("The memory is not up yet; try again in a moment.")
        return SearchResult(self.found, 0.004)

    async def bases(self, chat: ChatId) -> tuple[tuple[Base, ...], list[Base]]:
        every = [Base("[/b]papers", ("/home/ada/papers",)), Base("house", ("/home/ada/house",))]
        return self.chosen.get(chat, ()), every

    async def choose_bases(self, chat: ChatId, names: Sequence[str]) -> tuple[Base, ...]:
        self.chosen[chat] = tuple(base for base in (await self.bases(chat))[1] if base.name in names)
        return self.chosen[chat]

    async def search_web(self, question: str) -> tuple[Attachment, ...]:
        if self.send_error is not None:
            raise DeskError(self.send_error)
        return (Attachment("A page", "https://e.org", "https://e.org", DocumentId("web-1")),)

    async def documents(self) -> list[DocumentInfo]:
        return [DocumentInfo(DocumentId("d1"), "[/b]report.pdf", "/home/ada/report.pdf", "pdf", 3, 12, NOON)]

    async def export(self, chat: ChatId) -> str:
        return "\n\n".join(m.text for m in self.path(chat))

    async def sources(self, message: MessageId) -> tuple[Passage, ...]:
        self.calls.append(("sources", message))
        return self.tree[message].passages
