"""Small tokenizers of the kinds that Llama models use."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

_BYTES = "".join(sorted(pre_tokenizers.ByteLevel.alphabet()))
# GPT-2's table: printable bytes stand for themselves, the others follow from U+0100 on.
_PLAIN = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
_OTHERS = [byte for byte in range(256) if byte not in _PLAIN]
_CHARACTER = {byte: chr(byte) for byte in _PLAIN} | {byte: chr(256 + i) for i, byte in enumerate(_OTHERS)}


def byte_level(specials: tuple[str, ...], extra: tuple[bytes, ...] = ()) -> Tokenizer:
    """Every byte is a token, then the `extra` byte strings (decoded only: no merge makes them), then the specials."""
    vocab = {character: i for i, character in enumerate(_BYTES)}
    for token in extra:
        vocab.setdefault(byte_token(token), len(vocab))
    fast = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
    return fast


def byte_token(token: bytes) -> str:
    """How byte-level vocabularies write these bytes."""
    return "".join(_CHARACTER[byte] for byte in token)


def sentence_piece(kind: str, specials: tuple[str, ...], alphabet: str) -> Tokenizer:
    """Llama 2's kind: a mark for each space, one more at the start of a text, bytes for what is not in the vocabulary.

    `kind` "prepend" is Llama 2's normalizer (every stretch between special tokens gets a mark), "first" and "always"
    are the newer Metaspace schemes.
    """
    words = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *sorted(set(alphabet) - {" ", "▁"})]
    merges = [("▁", c) for c in sorted(set(alphabet) - {" ", "▁"}) if c.isalpha()]
    words += ["".join(pair) for pair in merges]
    vocab = {word: i for i, word in enumerate(words)}
    fast = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    if kind == "prepend":
        fast.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        fast.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=kind, split=False)
    fast.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    fast.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in ("<unk>", *specials)])
    return fast
