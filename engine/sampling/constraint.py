"""JSON-schema and regular-expression constraints: which tokens the answer may go on with, by llguidance.

llguidance (MIT, one wheel without dependencies) computes a mask in the time of a few microseconds to a millisecond;
xgrammar would bring transformers and another build of torch with it. It is imported with the first constraint.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.sampling.params import Constraint, JsonSchema
from engine.text.tokenizer import Tokenizer
from engine.types import EngineError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer


class ConstraintError(EngineError):
    """The schema or the pattern is wrong, or uses what cannot be enforced; names the place."""


class Constraints:
    """Makes matchers for one model. The vocabulary's trie is built once, with the first of them."""

    def __init__(self, tokenizer: Tokenizer, vocab: int, stop_ids: frozenset[int]) -> None:
        self._tokenizer, self._vocab, self._stop_ids = tokenizer, vocab, stop_ids
        self._trie: LLTokenizer | None = None

    def matcher(self, constraint: Constraint) -> Matcher:
        """A matcher at the beginning of an answer. Raises ConstraintError."""
        from llguidance import LLMatcher

        grammar = _grammar(constraint)
        if self._trie is None:
            self._trie = self._build_trie()
        faults = LLMatcher.validate_grammar(grammar, self._trie)
        if faults and not faults.startswith("WARNING"):
            raise ConstraintError(f"{_name(constraint)} cannot be used: {_one_line(faults)}")
        return Matcher(LLMatcher(self._trie, grammar, log_level=0), self._vocab)

    def _build_trie(self) -> LLTokenizer:
        from llguidance import LLTokenizer

        stops = sorted(self._stop_ids)
        if not stops:
            raise ConstraintError("this model has no token that ends an answer, so that no constraint can be kept")
        try:
            return LLTokenizer(self._tokenizer.to_json(), n_vocab=self._vocab, eos_token=stops)
        except ValueError as error:
            raise ConstraintError(f"this model's tokenizer cannot be constrained: {_one_line(str(error))}") from error


class Matcher:
    """How far an answer has come in its constraint."""

    def __init__(self, matcher: LLMatcher, vocab: int) -> None:
        self._matcher, self._vocab = matcher, vocab

    @property
    def complete(self) -> bool:
        """Whether nothing may follow any more."""
        return self._matcher.is_stopped()

    def allowed(self, device: torch.device) -> Tensor:
        """Which tokens may come next, `[vocab]` bool; those that end the answer where it may end.

        Raises ConstraintError when the constraint has become too large to follow.
        """
        packed = bytearray(self._matcher.compute_bitmask())
        self._check()
        words = torch.frombuffer(packed, dtype=torch.uint8)
        if device.type == "cuda":  # what is not pinned would be copied while the host waits
            words = words.pin_memory()
        words = words.to(device, non_blocking=True)
        bits = (words.unsqueeze(-1) >> torch.arange(8, dtype=torch.uint8, device=device)) & 1
        return bits.flatten()[: self._vocab].bool()

    def take(self, token: int) -> None:
        """The answer goes on with an allowed token."""
        self._matcher.consume_token(token)
        self._check()

    def take_back(self, count: int) -> None:
        """The last `count` tokens were taken back."""
        self._matcher.rollback(count)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise ConstraintError(f"the constraint could not be followed: {_one_line(self._matcher.get_error())}")


def _grammar(constraint: Constraint) -> str:
    from llguidance import LLMatcher

    if not isinstance(constraint, JsonSchema):
        return LLMatcher.grammar_from_regex(constraint.pattern)
    try:
        schema = json.loads(constraint.text)
    except ValueError as error:
        raise ConstraintError(f"the JSON schema is not JSON: {error}") from error
    if not isinstance(schema, dict | bool):
        raise ConstraintError(f"the JSON schema is {constraint.text.strip()[:40]!r}; it must be an object")
    # One space after each comma and colon, as models write it, and none elsewhere: where any white space may come, a
    # small model writes line breaks until its tokens are used up.
    return LLMatcher.grammar_from_json_schema(
        json.dumps(schema), overrides={"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
    )


def _name(constraint: Constraint) -> str:
    return "the JSON schema" if isinstance(constraint, JsonSchema) else f"the pattern {constraint.pattern[:60]!r}"


def _one_line(text: str) -> str:
    """The library's own sentence: the first line, and the regex engine's verdict where there is one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    verdict = next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), "")
    return (verdict or lines[0] if lines else "no reason was given")[:200]
