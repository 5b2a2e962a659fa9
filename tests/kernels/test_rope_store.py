"""The torch twin of rotating and storing against plain trigonometry, and what the launcher refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.rope_store import Angles, rope, rope_torch, store, store_torch
from tests.kernels.rope_world import make_batch


def turned(x, angles):
    """Value by value, in Python: pairs are (i, i + half)."""
    out = x.clone()
    half = angles.cos.shape[1] // 2
    for token, head in [(t, h) for t in range(x.shape[0]) for h in range(x.shape[1])]:
        for i in range(half):
            cos, sin = angles.cos[token, i], angles.sin[token, half + i]
            a, b = x[token, head, i].float(), x[token, head, half + i].float()
            out[token, head, i] = a * cos - b * sin
            out[token, head, half + i] = b * cos + a * sin
    return out


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 4), st.tuples(st.integers(1, 3), st.integers(1, 2)), st.sampled_from([2, 6, 8]), st.booleans(),
    st.integers(0, 99),
)  # fmt: skip
def test_twin_equals_trigonometry(tokens, heads, rotary, two_phase, seed):
    batch = make_batch(tokens, heads, 8, rotary, two_phase, seed=seed)
    q_window, q_sink, keys = rope_torch(*batch.to_rotate)
    torch.testing.assert_close(q_window, turned(batch.q, batch.window), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(q_sink, turned(batch.q, batch.sink or batch.window), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(keys, turned(batch.k, batch.window), atol=1e-6, rtol=1e-6)
    assert (q_sink is q_window) == (not two_phase)


def test_twin_stores_where_it_should():
    batch = make_batch(7, (4, 3), 8, 8, False)
    store_torch(*batch.to_store)
    for token, slot in enumerate(batch.slots.tolist()):
        assert torch.equal(batch.k_pages[:, slot // 16, slot % 16], batch.k[token])
        assert torch.equal(batch.v_pages[:, slot // 16, slot % 16], batch.v[token])
    assert batch.k_pages.isfinite().sum() == batch.v_pages.isfinite().sum() == batch.k.numel()


BATCH = make_batch(2, (4, 2), 64, 32, True)
SHORT = Angles(torch.zeros(1, 32), torch.zeros(1, 32))
ODD = Angles(torch.zeros(2, 31), torch.zeros(2, 31))
WRONG_ROPE = [
    ({"q": BATCH.q[0]}, "q has shape (4, 64): expected [tokens, q_heads, head_dim]"),
    ({"k": BATCH.k[0]}, "k has shape (2, 64): expected [tokens, kv_heads, head_dim]"),
    ({"k": BATCH.k.half()}, "k is torch.float16: expected torch.float32"),
    ({"k": BATCH.k[:1]}, "k has shape (1, 2, 64): expected (2, 2, 64)"),
    ({"window": SHORT}, "window.cos has shape (1, 32): expected (2, 32)"),
    ({"window": ODD}, "window.cos rotates 31 dimensions: expected an even number, at most 64"),
    ({"sink": Angles(BATCH.sink.cos, BATCH.sink.sin.double())}, "sink.sin is torch.float64: expected torch.float32"),
]
WRONG_STORE = [
    ({"k": BATCH.k[0]}, "k has shape (2, 64): expected [tokens, kv_heads, head_dim]"),
    ({"v": BATCH.v[:, :1]}, "v has shape (2, 1, 64): expected (2, 2, 64)"),
    ({"v": BATCH.v.half()}, "v is torch.float16: expected torch.float32"),
    ({"slots": BATCH.slots.int()}, "slots is torch.int32: expected torch.int64"),
    ({"k_pages": BATCH.k_pages[0]}, "expected [kv_heads, pages, page_size, head_dim]"),
    ({"v_pages": BATCH.v_pages[:, :, :8]}, "v_pages has shape (2, 3, 8, 64): expected (2, 3, 16, 64)"),
]


@pytest.mark.parametrize("launcher", [rope, rope_torch])
@pytest.mark.parametrize(("changes", "sentence"), WRONG_ROPE)
def test_a_wrong_argument_of_rope_is_named(launcher, changes, sentence):
    with pytest.raises(ValueError, match=r"expected") as raised:
        launcher(*replace(BATCH, **changes).to_rotate)
    assert sentence in str(raised.value)


@pytest.mark.parametrize("launcher", [store, store_torch])
@pytest.mark.parametrize(("changes", "sentence"), WRONG_STORE)
def test_a_wrong_argument_of_store_is_named(launcher, changes, sentence):
    with pytest.raises(ValueError, match=r"expected") as raised:
        launcher(*replace(BATCH, **changes).to_store)
    assert sentence in str(raised.value)
