"""The model's own tokenizer, from a GGUF file or a Hugging Face folder. Never another model's: the meter would lie."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tokenizers import Tokenizer as FastTokenizer

from engine.model.weights.folder import read_json
from engine.model.weights.gguf import GgufTokenizer
from engine.text.vocabulary import begins_with_bos, vocabulary
from engine.types import ModelFileError


class Tokenizer:
    """Encodes and decodes; knows the special tokens.

    A chat appended piece by piece has the tokens of the whole text encoded at once. Byte-level BPE needs nothing for
    that. SentencePiece vocabularies (Llama 2, TinyLlama) put a mark for a space before whatever begins a text, which
    a piece in the middle of a chat must not get: such a piece is encoded after a line break, and the line break's
    tokens are taken off again.
    """

    def __init__(
        self,
        fast: FastTokenizer,
        *,
        bos: int | None,
        special_ids: frozenset[int],
        eos: int | None = None,
        adds_bos: bool = False,
    ) -> None:
        self._fast = fast
        self.bos, self.eos = bos, eos
        self.special_ids = special_ids
        self.vocab_size = fast.get_vocab_size()
        self._adds_bos = adds_bos and bos is not None
        texts = sorted((text for i in special_ids if (text := fast.id_to_token(i))), key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, texts)) or r"(?!)")
        self._lead = self._whole("\n")
        self._marks_start = self._whole("x") != self._whole("\nx")[len(self._lead) :]
        self._marks_after_special = bool(texts) and self._whole(texts[0] + "x")[1:] == self._whole("x")

    def _whole(self, text: str) -> list[int]:
        return list(self._fast.encode(text, add_special_tokens=False).ids)

    def _continued(self, text: str) -> list[int]:
        if not self._marks_start or not text:
            return self._whole(text)
        ids = self._whole("\n" + text)
        n = len(self._lead)
        return ids[n:] if ids[:n] == self._lead else self._whole(text)

    def encode_start(self, text: str) -> list[int]:
        """Tokens of the text that begins a session, with exactly one BOS in front when the model is used to one.

        Templates that write their own BOS get no second one (llama.cpp #7332); those that leave it to the tokenizer
        (Zephyr, TinyLlama) get theirs.
        """
        ids = self._whole(text)
        if self.bos is not None and ids[:1] != [self.bos] and (self._adds_bos or not ids):
            return [self.bos, *ids]
        return ids

    def encode(self, text: str) -> list[int]:
        """Tokens of a text that the chat template wrote after other text: special tokens in it count as such, and
        none is added."""
        return self._whole(text) if self._special.match(text) else self._continued(text)

    def encode_plain(self, text: str) -> list[int]:
        """Tokens of a person's or a file's text: what looks like a special token is plain characters in it."""
        return self._plainly(self._whole, text)

    def encode_message(self, before: str, text: str, after: str) -> list[int]:
        """Tokens of a message: `text` as plain characters between what the template writes before and after it.

        All that lies between two special tokens is encoded together, as the template's whole rendering would be:
        a line break that ends `before` and one that begins `text` may be one token.
        """
        opened = max((match.end() for match in self._special.finditer(before)), default=0)
        closed = min((match.start() for match in self._special.finditer(after)), default=len(after))
        fresh = opened > 0 and self._marks_after_special
        inner = self._plainly(self._whole if fresh else self._continued, before[opened:] + text + after[:closed])
        return self.encode(before[:opened]) + inner + self.encode(after[closed:])

    def _plainly(self, encode: Callable[[str], list[int]], text: str) -> list[int]:
        self._fast.encode_special_tokens = True
        try:
            ids = encode(text)
        finally:
            self._fast.encode_special_tokens = False
        # The library may still meet one where a whole word is looked up at once (`ignore_merges`).
        return ids if self.special_ids.isdisjoint(ids) else [i for i in ids if i not in self.special_ids]

    def decode(self, ids: list[int]) -> str:
        """Text of tokens, special tokens left out. Incomplete characters come out as U+FFFD."""
        return str(self._fast.decode(ids, skip_special_tokens=True))

    def token_id(self, text: str) -> int | None:
        """The id of a token by its text."""
        found: int | None = self._fast.token_to_id(text)
        return found

    def token_text(self, token: int) -> str:
        """The text of a token by its id; "" for none."""
        return self._fast.id_to_token(token) or ""

    def to_json(self) -> str:
        """The whole tokenizer as JSON, for another process to count tokens with."""
        return str(self._fast.to_str())


def from_gguf(parts: GgufTokenizer) -> Tokenizer:
    """The tokenizer that a GGUF file describes. Raises what `vocabulary` raises."""
    fast = vocabulary(parts)
    special = frozenset(i for i, token in fast.get_added_tokens_decoder().items() if token.special)
    # llama.cpp: files that do not say begin with a BOS when they are Llama 3's or SentencePiece's.
    adds_bos = begins_with_bos(parts) if parts.add_bos is None else parts.add_bos
    return Tokenizer(fast, bos=parts.bos, eos=parts.eos, adds_bos=adds_bos, special_ids=special)


def from_folder(folder: Path) -> Tokenizer:
    """The tokenizer of a Hugging Face folder (tokenizer.json). Raises ModelFileError."""
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise ModelFileError(f"the model folder {folder} lacks tokenizer.json; save it with the fast tokenizer")
    try:
        fast = FastTokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare Exception for a broken file
        raise ModelFileError(f"{file} cannot be read ({error}); fetch it again") from error
    special = frozenset(i for i, token in fast.get_added_tokens_decoder().items() if token.special)
    config = read_json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
    bos, eos = (_named(fast, config.get(f"{name}_token")) for name in ("bos", "eos"))
    # The post-processor is what adds a BOS when this tokenizer is used alone.
    adds_bos = bos is not None and fast.encode("x").ids[:1] == [bos]
    return Tokenizer(fast, bos=bos, eos=eos, adds_bos=adds_bos, special_ids=special)


def _named(fast: FastTokenizer, token: object) -> int | None:
    text = token.get("content") if isinstance(token, dict) else token
    found: int | None = fast.token_to_id(text) if isinstance(text, str) else None
    return found
