"""The model's own chat template (Jinja), cut into appendable pieces.

A prompt is append-only (design rule 9): a template is never run again over earlier turns. So what it writes for
the system prompt, around a user turn and around an answer is read off one small probe chat, once, and the pieces are
then checked against the template's own rendering of a longer one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.meta import find_undeclared_variables
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.types import UnsupportedModelError

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# Texts that no template writes of itself: control characters that are not white space, so nothing trims them either.
_SYSTEM, _FIRST, _SECOND, _THIRD = "\x02system\x03", "\x02one\x03", "\x02two\x03", "\x02three\x03"
_ANSWER, _LATER = "\x02answer\x03", "\x02later\x03"
_CHAT = [("system", _SYSTEM), ("user", _FIRST), ("assistant", _ANSWER), ("user", _SECOND)]
_LONGER = [*_CHAT, ("assistant", _LATER), ("user", _THIRD)]


THINKING = ("enable_thinking", "thinking")
"""What templates call their thinking switch: Qwen3 and SmolLM3, Granite 3.2 and DeepSeek 3.1."""


class _Generation(Extension):
    """`{% generation %}` (SmolLM3) marks the answer's text for training; here it is only its text."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


@dataclass(frozen=True, slots=True)
class Piece:
    """What stands before and after a message's text."""

    before: str
    after: str


class ChatTemplate:
    """Pieces of a chat: `system_prompt`, then user turns and answers for ever.

    `answer` is what stands around an answer given earlier, `generation` what asks the model for a new one. They
    differ where a template leaves the answer's leading space to the model (Llama 2).
    """

    def __init__(
        self,
        source: str | None,
        *,
        bos: str = "",
        eos: str = "",
        variables: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        """Compile the template, None is ChatML; `variables` are the values of names that it asks for.

        Raises UnsupportedModelError when it cannot be used append-only.
        """
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
        )
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        try:
            self._template = environment.from_string(source or CHATML)
        except TemplateError as error:
            raise UnsupportedModelError(f"the model's chat template cannot be read: {error}") from error
        self._source, self._bos, self._eos, self._variables = source, bos, eos, dict(variables)
        self._names = find_undeclared_variables(environment.parse(source or CHATML))
        self._trims = self._render([("user", f" {_FIRST} ")]) == self._render([("user", _FIRST)])
        try:
            self._read_pieces()
            whole = self._render(_LONGER, generate=True)
            appendable = self._appended() == whole
        except ValueError:
            appendable = False
        if not appendable:
            raise UnsupportedModelError(
                "the model's chat template writes earlier turns anew and cannot be appended to; "
                "take a model whose template only adds to what it wrote"
            )

    @property
    def switches_thinking(self) -> bool:
        """Whether the template can ask the model to think before it answers, or not to."""
        return not self._names.isdisjoint(THINKING)

    def with_thinking(self, on: bool) -> ChatTemplate:
        """This template with its thinking switch set; the same where it has none."""
        if not self.switches_thinking:
            return self
        variables = {**self._variables, **dict.fromkeys(THINKING, on)}
        return ChatTemplate(self._source, bos=self._bos, eos=self._eos, variables=variables)

    def system_prompt(self, text: str) -> str:
        """Everything before the first user message: the sinks."""
        before, _ = self._cut_at(self._render([("system", text), ("user", _FIRST)]), _FIRST)
        return before.removesuffix(self._first_user.before)

    def user(self, first: bool) -> Piece:
        """Around a user message (first or later in the chat)."""
        return self._first_user if first else self._later_user

    @property
    def answer(self) -> Piece:
        """Around an answer given earlier; its `after` also ends a new one."""
        return self._answer

    @property
    def generation(self) -> str:
        """What stands between a user message and a new answer."""
        return self._generation

    def content(self, text: str) -> str:
        """A message's text as the template writes it: trimmed when it trims (Llama 2 and 3)."""
        return text.strip() if self._trims else text

    def _render(self, messages: list[tuple[str, str]], *, generate: bool = False) -> str:
        wire: list[dict[str, Any]] = [{"role": role, "content": text} for role, text in messages]
        try:
            return self._template.render(
                self._variables,
                messages=wire,
                add_generation_prompt=generate,
                bos_token=self._bos,
                eos_token=self._eos,
            )
        except (TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            raise UnsupportedModelError(f"the model's chat template fails on a plain chat: {error}") from error

    def _cut_at(self, text: str, mark: str) -> tuple[str, str]:
        before, found, after = text.rpartition(mark)
        if not found:
            raise UnsupportedModelError("the model's chat template leaves out a message of a plain chat")
        return before, after

    def _read_pieces(self) -> None:
        """Read the pieces off the probe chat. Raises ValueError when one rendering does not continue another."""
        to_first, user_end = self._cut_at(self._render(_CHAT[:2]), _FIRST)
        chat = self._render(_CHAT)
        to_answer, _ = self._cut_at(chat, _ANSWER)
        between = _continuation(self._cut_at(chat, _SECOND)[0], to_answer + _ANSWER)
        self._first_user = Piece(_continuation(to_first, self._system_alone(to_first)), user_end)
        asked = to_first + _FIRST + user_end
        self._generation = _continuation(self._render(_CHAT[:2], generate=True), asked)
        answer_end = self._cut_at(self._render(_CHAT[:3]), _ANSWER)[1]
        self._answer = Piece(_continuation(to_answer, asked), answer_end)
        self._later_user = Piece(_continuation(between, answer_end), self._cut_at(chat, _SECOND)[1])

    def _system_alone(self, to_first: str) -> str:
        # Llama 2 writes the system prompt into the first user turn: then all that stands before its text are sinks.
        try:
            alone = self._render(_CHAT[:1])
        except UnsupportedModelError:
            return to_first
        return alone if _SYSTEM in alone and to_first.startswith(alone) else to_first

    def _appended(self) -> str:
        """The longer probe chat, put together from the pieces."""
        parts = [self.system_prompt(_SYSTEM)]
        for index, (role, text) in enumerate(_LONGER[1:]):
            piece = self.user(first=index == 0) if role == "user" else self.answer
            parts.append(piece.before + text + piece.after)
        return "".join(parts) + self.generation


def _continuation(text: str, beginning: str) -> str:
    if not text.startswith(beginning):
        raise ValueError("not a continuation")
    return text[len(beginning) :]


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)
