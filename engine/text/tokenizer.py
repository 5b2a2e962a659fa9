"""The model's own tokenizer, from a GGUF file or a Hugging Face folder. Never another model's: the meter would lie."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as FastTokenizer

from engine.model.weights.folder import read_json
from engine.model.weights.gguf import GgufTokenizer
from engine.types import ModelFileError, UnsupportedModelError

CONTROL, USER_DEFINED = 3, 4

# How each pre-tokenizer named by GGUF files splits text before BPE (names and patterns are llama.cpp's and the
# models' own tokenizer.json's).
_LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)


class Tokenizer:
    """Encodes and decodes; knows the special tokens."""

    def __init__(self, fast: FastTokenizer, *, bos: int | None, special_ids: frozenset[int]) -> None:
        self._fast = fast
        self.bos = bos
        self.special_ids = special_ids
        self.vocab_size = fast.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """Tokens of a text rendered by the chat template: special tokens written in it count as such, and none is
        added (the template writes its own BOS; adding one more is llama.cpp #7332)."""
        return list(self._fast.encode(text, add_special_tokens=False).ids)

    def encode_plain(self, text: str) -> list[int]:
        """Tokens of a person's or a file's text: what looks like a special token is plain characters in it."""
        ids: list[int] = []
        for piece in self._without_specials(text):
            ids += self._fast.encode(piece, add_special_tokens=False).ids
        return ids

    def _without_specials(self, text: str) -> Iterator[str]:
        # A special token's text is cut after its first character, so that it cannot match as a whole.
        start = 0
        while start < len(text):
            found = [(text.find(s, start), s) for s in self._special_texts() if text.find(s, start) >= 0]
            if not found:
                yield text[start:]
                return
            at, special = min(found, key=lambda hit: (hit[0], -len(hit[1])))
            cut = at + 1 if len(special) > 1 else at + len(special)
            yield text[start:cut]
            start = cut

    def _special_texts(self) -> list[str]:
        return [text for i in self.special_ids if (text := self._fast.id_to_token(i))]

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
    """Build the tokenizer that a GGUF file describes.

    Raises UnsupportedModelError for a kind that is not read.
    """
    if parts.model != "gpt2":
        raise UnsupportedModelError(
            f"this GGUF file has a tokenizer of the kind '{parts.model}'; byte-level BPE ('gpt2') is read, "
            "for others take the model's Hugging Face folder"
        )
    vocab = {token: index for index, token in enumerate(parts.tokens)}
    merges = [(left, right) for left, _, right in (merge.partition(" ") for merge in parts.merges)]
    fast = FastTokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=parts.pre == "llama-bpe"))
    fast.pre_tokenizer = _pre_tokenizer(parts.pre)
    fast.decoder = decoders.ByteLevel()
    special = [index for index, kind in enumerate(parts.types) if kind == CONTROL]
    defined = [index for index, kind in enumerate(parts.types) if kind == USER_DEFINED]
    fast.add_special_tokens([AddedToken(parts.tokens[i], special=True, normalized=False) for i in special])
    fast.add_tokens([AddedToken(parts.tokens[i], special=False, normalized=False) for i in defined])
    return Tokenizer(fast, bos=parts.bos, special_ids=frozenset(special))


def _pre_tokenizer(name: str) -> pre_tokenizers.PreTokenizer:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if name == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    if name in ("default", "gpt-2"):
        return byte_level
    if name in ("llama-bpe", "llama3", "llama-v3"):
        split = pre_tokenizers.Split(Regex(_LLAMA3_PATTERN), "isolated")
        return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    raise UnsupportedModelError(
        f"this GGUF file splits text by the rule '{name}', which is not known here; read are smollm, gpt-2 and "
        "llama-bpe, for others take the model's Hugging Face folder"
    )


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
    bos = config.get("bos_token")
    bos_text = bos.get("content") if isinstance(bos, dict) else bos
    return Tokenizer(fast, bos=fast.token_to_id(bos_text) if bos_text else None, special_ids=special)
