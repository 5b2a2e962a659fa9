"""The torch twin of the quantise kernel against the engine's page formats, and what the launcher refuses."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cache.formats.integer import Int4, Int8
from engine.cache.formats.rotation import rotation
from engine.cache.formats.turbo import Turbo3, codebook
from kernels.page_quantise import Packing, quantise_rows, quantise_rows_torch

ENGINE = {Packing.INT8: Int8(), Packing.INT4: Int4(), Packing.TQ3: Turbo3()}


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(list(Packing)), st.sampled_from([16, 64, 80, 96, 128, 256]), st.integers(0, 999),
    st.sampled_from([torch.float32, torch.float16, torch.bfloat16]), st.sampled_from([0.0, 1e-3, 1.0, 300.0]),
    st.booleans(),
)  # fmt: skip
def test_twin_gives_the_engines_bytes(packing, head_dim, seed, dtype, size, rotated):
    rows = (size * torch.randn(2, 9, head_dim, generator=torch.Generator().manual_seed(seed))).to(dtype)
    if rotated:
        rows = (rows.float() @ rotation(head_dim)).to(dtype)
    wanted = ENGINE[packing].quantise(rows)
    slots = torch.randperm(16, generator=torch.Generator().manual_seed(seed))[:9]
    codes = torch.full((2, 16, ENGINE[packing].row_bytes(head_dim)), 7, dtype=torch.uint8)
    scales = torch.full((2, 16), 7, dtype=torch.bfloat16)
    magnitudes = torch.tensor(codebook(head_dim, 3)[4:]) if packing is Packing.TQ3 else None
    quantise_rows_torch(rows, slots, codes, scales, packing, magnitudes=magnitudes)
    assert torch.equal(codes[:, slots], wanted.codes)
    assert torch.equal(scales[:, slots], wanted.scales)
    others = [slot for slot in range(16) if slot not in slots.tolist()]
    assert (codes[:, others] == 7).all()
    assert (scales[:, others] == 7).all()


ROWS, SLOTS = torch.zeros(2, 4, 64), torch.arange(4)
CODES, SCALES = torch.zeros(2, 9, 64, dtype=torch.uint8), torch.zeros(2, 9, dtype=torch.bfloat16)


@pytest.mark.parametrize("launcher", [quantise_rows, quantise_rows_torch])
@pytest.mark.parametrize(
    ("arguments", "packing", "options", "sentence"),
    [
        ((ROWS[0], SLOTS, CODES, SCALES), Packing.INT8, {}, "expected [kv_heads, tokens, head_dim]"),
        ((ROWS.double(), SLOTS, CODES, SCALES), Packing.INT8, {}, "rows is torch.float64: expected float32"),
        ((ROWS[..., :60], SLOTS, CODES, SCALES), Packing.INT8, {}, "head_dim is 60: expected a multiple of 8"),
        ((ROWS, SLOTS.int(), CODES, SCALES), Packing.INT8, {}, "slots is torch.int32: expected torch.int64"),
        ((ROWS, SLOTS, CODES, SCALES), Packing.INT4, {}, "codes has shape (2, 9, 64): expected (2, 9, 32)"),
        ((ROWS, SLOTS, CODES, SCALES.half()), Packing.INT8, {}, "scales is torch.float16: expected torch.bfloat16"),
        ((ROWS, SLOTS, CODES[..., :24], SCALES), Packing.TQ3, {}, "magnitudes belong to TQ3"),
        ((ROWS, SLOTS, CODES, SCALES), Packing.INT8, {"magnitudes": ROWS[0, 0, :4]}, "magnitudes belong to TQ3"),
    ],
)
def test_a_wrong_argument_is_named(launcher, arguments, packing, options, sentence):
    with pytest.raises(ValueError, match=r"expected|belong") as raised:
        launcher(*arguments, packing, **options)
    assert sentence in str(raised.value)
