"""The vocabulary of a GGUF file, made into a tokenizer of the tokenizers library: byte-level BPE or SentencePiece's."""

from __future__ import annotations

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as FastTokenizer

from engine.model.weights.gguf import GgufTokenizer
from engine.types import ModelFileError, UnsupportedModelError

BYTE_LEVEL, SENTENCE_PIECE = "gpt2", "llama"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
MARK = "▁"
"""What SentencePiece writes for a space."""

# How each pre-tokenizer named by GGUF files splits text before BPE (names and patterns are llama.cpp's and the
# models' own tokenizer.json's).
_LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_LLAMA3_NAMES = ("llama-bpe", "llama3", "llama-v3")
_QWEN2_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_TEKKEN_PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Phi-4 and OLMo 2 say dbrx, SmolLM3 smaug-bpe, Mistral Nemo tekken.
_PATTERNS = dict.fromkeys((*_LLAMA3_NAMES, "dbrx", "smaug-bpe"), _LLAMA3_PATTERN) | {
    "qwen2": _QWEN2_PATTERN,
    "tekken": _TEKKEN_PATTERN,
}
# Vocabularies whose whole words are tokens whatever their merges say.
_WHOLE_WORDS = (*_LLAMA3_NAMES, "tekken")


def vocabulary(parts: GgufTokenizer) -> FastTokenizer:
    """The tokenizer, its special and its own added tokens included.

    Raises UnsupportedModelError for a kind that is not read, ModelFileError when its parts do not fit together.
    """
    if parts.model not in (BYTE_LEVEL, SENTENCE_PIECE):
        raise UnsupportedModelError(
            f"this GGUF file has a tokenizer of the kind '{parts.model}'; byte-level BPE ('{BYTE_LEVEL}') and "
            f"SentencePiece BPE ('{SENTENCE_PIECE}') are read, for others take the model's Hugging Face folder"
        )
    fast = _byte_level(parts) if parts.model == BYTE_LEVEL else _sentence_piece(parts)
    kinds = list(zip(parts.tokens, parts.types, strict=False))
    special = [token for token, kind in kinds if kind == CONTROL]
    defined = [token for token, kind in kinds if kind == USER_DEFINED]
    fast.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    fast.add_tokens([AddedToken(token, special=False, normalized=False) for token in defined])
    return fast


def begins_with_bos(parts: GgufTokenizer) -> bool:
    """Whether texts begin with a BOS where the file does not say."""
    return parts.model == SENTENCE_PIECE or parts.pre in _LLAMA3_NAMES


def _byte_level(parts: GgufTokenizer) -> FastTokenizer:
    vocab = {token: index for index, token in enumerate(parts.tokens)}
    merges = [(left, right) for left, _, right in (merge.partition(" ") for merge in parts.merges)]
    try:
        fast = FastTokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=parts.pre in _WHOLE_WORDS))
    except Exception as error:  # the library raises bare Exception for merges of unknown tokens
        raise ModelFileError(f"the tokenizer in this GGUF file is inconsistent ({error}); fetch it again") from error
    fast.pre_tokenizer = _pre_tokenizer(parts.pre)
    if parts.pre == "qwen2":
        fast.normalizer = normalizers.NFC()
    fast.decoder = decoders.ByteLevel()
    return fast


def _sentence_piece(parts: GgufTokenizer) -> FastTokenizer:
    """A mark stands for a space; what is in no piece becomes its bytes; pairs are merged by the score of the piece that
    they make (Kudo and Richardson, arXiv 1808.06226, in their BPE mode)."""
    if not len(parts.tokens) == len(parts.types) == len(parts.scores):
        raise ModelFileError(
            f"the tokenizer in this GGUF file is inconsistent ({len(parts.tokens)} tokens, {len(parts.types)} types, "
            f"{len(parts.scores)} scores); fetch it again"
        )
    unknown = next((token for token, kind in zip(parts.tokens, parts.types, strict=True) if kind == UNKNOWN), None)
    model = models.BPE(
        vocab={token: index for index, token in enumerate(parts.tokens)},
        merges=_merges(parts),
        unk_token=unknown,
        byte_fallback=BYTE in parts.types,
        fuse_unk=True,
    )
    fast = FastTokenizer(model)
    marks, spaces = (
        normalizers.Replace(" ", MARK),
        [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()],
    )
    if parts.add_space_prefix:
        fast.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), marks])
        fast.decoder = decoders.Sequence([*spaces, decoders.Strip(" ", 1, 0)])
    else:
        fast.normalizer, fast.decoder = marks, decoders.Sequence(spaces)
    return fast


def _merges(parts: GgufTokenizer) -> list[tuple[str, str]]:
    """All pairs of pieces that make a piece, that of the highest score first; of one score, the first in the file."""
    made = [
        (score, token)
        for token, kind, score in zip(parts.tokens, parts.types, parts.scores, strict=True)
        if kind in (NORMAL, USER_DEFINED)
    ]
    pieces = {token for _, token in made}
    made.sort(key=lambda scored: -scored[0])
    return [
        (token[:cut], token[cut:])
        for _, token in made
        for cut in range(1, len(token))
        if token[:cut] in pieces and token[cut:] in pieces
    ]


def _pre_tokenizer(name: str) -> pre_tokenizers.PreTokenizer:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if name in ("smollm", "refact"):  # Granite says refact
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    if name in ("default", "gpt-2"):
        return byte_level
    if name in _PATTERNS:
        split = pre_tokenizers.Split(Regex(_PATTERNS[name]), "isolated")
        return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    raise UnsupportedModelError(
        f"this GGUF file splits text by the rule '{name}', which is not known here; read are smollm, refact, gpt-2, "
        f"{', '.join(_PATTERNS)}; for others take the model's Hugging Face folder"
    )
