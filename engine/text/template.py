"""The model's own chat template (Jinja), cut into appendable pieces.

A prompt is append-only (design rule 9): a template is never run again over earlier turns. So what it writes for
the system prompt, for one user turn and after one answer is read off small probe conversations once, and a turn is
the piece around its text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.types import UnsupportedModelError

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_PROBE, _SECOND, _ANSWER = "\x02one\x03", "\x02two\x03", "\x02answer\x03"


@dataclass(frozen=True, slots=True)
class Piece:
    """What stands before and after a message's text."""

    before: str
    after: str


class ChatTemplate:
    """Pieces of a chat: `system_prompt`, then user turns and answers for ever."""

    def __init__(self, source: str | None, *, bos: str = "", eos: str = "") -> None:
        """Compile the template; None is ChatML. Raises UnsupportedModelError when it cannot be used append-only."""
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda _format: ""
        try:
            self._template = environment.from_string(source or CHATML)
        except TemplateError as error:
            raise UnsupportedModelError(f"the model's chat template cannot be read: {error}") from error
        self._bos, self._eos = bos, eos
        self._first_user = self._user_piece([])
        self._later_user = self._user_piece([("user", "x"), ("assistant", "y")])
        self._answer = self._answer_piece()

    def system_prompt(self, text: str) -> str:
        """Everything before the first user message: the sinks."""
        whole = self._render([("system", text), ("user", _PROBE)], generate=True)
        cut = whole.index(_PROBE) - len(self._first_user.before)
        return whole[:cut]

    def user(self, first: bool) -> Piece:
        """Around a user message (first or later in the chat)."""
        return self._first_user if first else self._later_user

    def answer(self) -> Piece:
        """Around an answer: the generation prompt before it, the end of turn after it."""
        return self._answer

    def _render(self, messages: list[tuple[str, str]], *, generate: bool) -> str:
        wire: list[dict[str, Any]] = [{"role": role, "content": text} for role, text in messages]
        try:
            return self._template.render(
                messages=wire, add_generation_prompt=generate, bos_token=self._bos, eos_token=self._eos
            )
        except (TemplateError, TypeError, ValueError, KeyError) as error:
            raise UnsupportedModelError(f"the model's chat template fails on a plain chat: {error}") from error

    def _user_piece(self, earlier: list[tuple[str, str]]) -> Piece:
        base = [("system", "s"), *earlier]
        one = self._render([*base, ("user", _PROBE)], generate=False)
        before = self._render(base, generate=False)
        at = one.index(_PROBE)
        if one.startswith(before) and len(before) <= at:
            return Piece(one[len(before) : at], one[at + len(_PROBE) :])
        # The template writes the system prompt into the user turn (Llama 2): the turn is what follows its end.
        start = one.index("s", 0, at) + 1 if not earlier else len(_common_prefix(one, before))
        return Piece(one[start:at], one[at + len(_PROBE) :])

    def _answer_piece(self) -> Piece:
        asked = [("system", "s"), ("user", _PROBE)]
        closed = self._render(asked, generate=False)
        prompted = self._render(asked, generate=True)
        answered = self._render([*asked, ("assistant", _ANSWER), ("user", _SECOND)], generate=False)
        if _ANSWER not in answered or not prompted.startswith(closed):
            raise UnsupportedModelError("the model's chat template rewrites earlier turns and cannot be appended to")
        at = answered.index(_ANSWER) + len(_ANSWER)
        after = answered[at : answered.index(_SECOND)]
        return Piece(prompted[len(closed) :], after.removesuffix(self._later_user.before))


def _common_prefix(a: str, b: str) -> str:
    length = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        length += 1
    return a[:length]


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)
