"""The top line: product, chat, model; and the line above the prompt that says what is going on."""

from __future__ import annotations

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Static

from app.events import IngestJob, JobPhase, ModelPhase, ModelState, Part
from app.tui.glyphs import GLYPHS
from app.tui.text import job_words, megabytes, one_line, plural

_TINTS = {
    ModelPhase.FETCHING: "$text-warning",
    ModelPhase.LOADING: "$text-warning",
    ModelPhase.READY: "$foreground 60%",
    ModelPhase.FAILED: "$text-error",
}


def model_words(state: ModelState) -> str:
    """One part's state: the model's name when it is ready, progress while it is fetched or loaded. Why a part failed
    takes more room: see Failures."""
    match state.phase:
        case ModelPhase.FETCHING if state.total:
            share = min(100, round(100 * state.done / state.total))
            done = megabytes(state.done).removesuffix(" MB")
            return f"fetching {state.part} {done} of {megabytes(state.total)} ({share} %)"
        case ModelPhase.FETCHING:
            return f"fetching {state.part}"
        case ModelPhase.LOADING:
            return f"loading {state.part}" + (f" {round(100 * state.done / state.total)} %" if state.total else "")
        case ModelPhase.FAILED:
            return f"no {state.part}"
        case ModelPhase.READY if _indexes(state):
            return f"indexing {state.done:,} of {plural(state.total, 'passage')}"
        case ModelPhase.READY:
            if state.engine is not None:
                return f"{state.engine.model_name} {GLYPHS.dot} {state.engine.device}"
            return state.text


def _indexes(state: ModelState) -> bool:
    """Whether the memory serves but is not through with its passages."""
    return state.engine is None and state.done < state.total


class StatusBar(Widget):
    """The top line of the screen."""

    DEFAULT_CSS = """
    StatusBar { height: 1; dock: top; background: $panel; color: $foreground; padding: 0 2; }
    """
    title: reactive[str] = reactive("")
    states: reactive[tuple[ModelState, ...]] = reactive(())

    def render(self) -> Content:
        """Product and title on the left, models on the right."""
        right = self._models()
        width = self.content_size.width
        left = Content.assemble(
            ("aios-chat", "bold $text-primary"),
            "   ",
            one_line(self.title, max(0, width - right.cell_length - 15)),
        )
        gap = max(1, width - left.cell_length - right.cell_length)
        return Content.assemble(left, " " * gap, right)

    def _models(self) -> Content:
        busy = [s for s in self.states if s.phase is not ModelPhase.READY or _indexes(s)]
        shown = busy or [s for s in self.states if s.engine is not None]
        width = max(20, self.content_size.width - 30)
        parts = [(one_line(model_words(s), width), _TINTS[s.phase]) for s in shown]
        dot = Content.styled(f" {GLYPHS.dot} ", "$foreground 60%")
        return dot.join(Content.styled(words, tint) for words, tint in parts)

    def show(self, state: ModelState) -> None:
        """One part moved on."""
        others = [s for s in self.states if s.part != state.part]
        self.states = tuple(sorted((*others, state), key=lambda s: s.part is not Part.MODEL))


class Failures(Static):
    """Why the model or the memory is not there and what to do, in full, for as long as it is so."""

    DEFAULT_CSS = """
    Failures { height: auto; max-height: 6; padding: 0 2; color: $text-error; }
    """

    def __init__(self, *, id: str) -> None:  # noqa: A002  (Textual's own name)
        super().__init__("", id=id)
        self.display = False
        self._sentences: dict[str, str] = {}

    def show(self, state: ModelState) -> None:
        """One part moved on."""
        self._sentences.pop(state.part, None)
        if state.phase is ModelPhase.FAILED:
            self._sentences[state.part] = f"{GLYPHS.failed} {state.text}"
        self.display = bool(self._sentences)
        self.update(Content("\n".join(dict.fromkeys(self._sentences.values()))))


class Activity(Static):
    """What is going on: recalling, reading the prompt, writing, reading files. Hidden when nothing is."""

    DEFAULT_CSS = """
    Activity { height: 1; padding: 0 2; color: $text-muted; }
    """

    def __init__(self, *, id: str) -> None:  # noqa: A002  (Textual's own name)
        super().__init__("", id=id)
        self.display = False
        self._answer = ""
        self._aside = ""
        self._jobs: dict[str, str] = {}

    def answering(self, words: str) -> None:
        """What the answer is doing; "" when none is running."""
        self._answer = words
        self._draw()

    def aside(self, words: str) -> None:
        """What the model does while nobody asks it; "" when it rests."""
        self._aside = words
        self._draw()

    def job(self, job: IngestJob) -> None:
        """A file's reading moved on."""
        if job.phase in (JobPhase.DONE, JobPhase.FAILED):
            self._jobs.pop(job.id, None)
        else:
            self._jobs[job.id] = f"{job.name}: {job_words(job)}"
        self._draw()

    def leave(self, job: IngestJob) -> None:
        """A chip shows this file's reading: it needs no second place."""
        self._jobs.pop(job.id, None)
        self._draw()

    def _draw(self) -> None:
        words = [w for w in (self._answer, self._aside, *self._jobs.values()) if w]
        self.display = bool(words)
        self.update(Content(f"  {GLYPHS.dot}  ".join(words)))
