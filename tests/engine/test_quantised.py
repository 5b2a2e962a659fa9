"""Weights in 8 and 4 bits: what is held, what it computes, and what it costs in quality."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from gguf import GGMLQuantizationType, GGUFReader
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engine.engine import Engine, EngineConfig
from engine.events import AnswerFinished
from engine.model.linear import DenseLinear, Linear, WeightForm
from engine.model.load import LoadedModel, load_model, open_model
from engine.model.weights.grouped import Grouped, grouped_int4, grouped_int8
from engine.model.weights.keep import Keeper
from engine.model.weights.quantised import LowBitLinear, PackedLinear
from engine.sampling.params import SamplingParams
from engine.types import MessageKey
from kernels.cpu.packed_weights import GROUP, unpack
from kernels.cpu.ready import wait_compiled
from kernels.low_bit_weights import unpack_low_bit
from tests.bench.weights import TEXT, quality, read
from tests.engine.family_models import FAMILIES, NAMED, make_model, write_model
from tests.engine.gguf_files import write_gguf
from tests.engine.tiny import CPU, Tiny

SHAPES = st.tuples(
    st.integers(1, 70) | st.sampled_from([304, 576, 1040]), st.sampled_from([1, 7, 31, 32, 48, 64, 96, 160])
)
FORMS = st.sampled_from([WeightForm.INT8, WeightForm.INT4])
F16 = 2**-11
"""What a scale is rounded by."""
TOKENS = 8


@pytest.fixture(scope="module", autouse=True)
def kernels() -> None:
    assert wait_compiled(280)


def weight_of(rows: int, columns: int, seed: int, spread: float = 1.0) -> Tensor:
    torch.manual_seed(seed)
    return torch.randn(rows, columns) * spread + 0.3 * spread


def held(form: WeightForm, weight: Tensor, bias: Tensor | None = None) -> Linear:
    return Keeper(CPU, torch.float32, form).linear([weight], (weight.shape[0], weight.shape[1]), bias)


def dequantised(linear: Linear) -> Tensor:
    """The weight that a map applies."""
    if isinstance(linear, PackedLinear):
        return unpack(linear.weight)
    assert isinstance(linear, LowBitLinear)
    return linear.rows(torch.arange(linear.weight.rows))


def groups_of(weight: Tensor) -> Tensor:
    """`[rows, groups, GROUP]`, filled up with zeros."""
    return F.pad(weight, (0, -weight.shape[1] % GROUP)).view(weight.shape[0], -1, GROUP)


@given(SHAPES, FORMS, st.integers(0, 9), st.sampled_from([1e-4, 1.0, 300.0]))
def test_a_weight_is_off_by_half_a_step(shape: tuple[int, int], form: WeightForm, seed: int, spread: float) -> None:
    weight = weight_of(*shape, seed, spread)
    linear = held(form, weight)
    assert isinstance(linear, LowBitLinear | PackedLinear)
    groups = groups_of(weight)
    if linear.weight.bits == 8:
        step = groups.abs().amax(-1, keepdim=True) / 127
        # The scale itself is rounded, and the largest value may then be cut off by as much.
        allowed = step * 0.51 + groups.abs() * F16
    else:
        step = (groups.amax(-1, keepdim=True) - groups.amin(-1, keepdim=True)) / 15
        allowed = step * 0.51 + 2 * (groups.abs().amax(-1, keepdim=True) + 8 * step) * F16
    # Below float16's normal numbers, its steps are 6e-8.
    off = groups_of(dequantised(linear) - weight).abs()
    assert bool((off <= allowed + 127 * 6e-8 + 1e-12).all())


@given(SHAPES, FORMS, st.integers(0, 9))
def test_every_device_holds_the_same_numbers(shape: tuple[int, int], form: WeightForm, seed: int) -> None:
    """A CPU's float32 is packed for its own kernel; whatever runs in bfloat16 is held as on a GPU."""
    weight = weight_of(*shape, seed)
    other = Keeper(CPU, torch.bfloat16, form).linear([weight], shape, None)
    assert isinstance(other, LowBitLinear)
    assert torch.equal(unpack_low_bit(other.weight, torch.arange(shape[0])), dequantised(held(form, weight)))


@given(SHAPES, FORMS, st.integers(1, TOKENS), st.booleans(), st.integers(0, 9))
def test_a_product_is_that_of_the_dequantised_weight(
    shape: tuple[int, int], form: WeightForm, tokens: int, biased: bool, seed: int
) -> None:
    rows, columns = shape
    weight, x = weight_of(rows, columns, seed), torch.randn(tokens, columns)
    bias = torch.randn(rows) if biased else None
    linear = held(form, weight, bias)
    want = DenseLinear(dequantised(held(form, weight)), bias)(x)
    scale = (x.norm(dim=1, keepdim=True) * weight.norm(dim=1)).clamp(min=1e-6)
    assert linear(x).shape == want.shape
    assert float(((linear(x) - want).abs() / scale).max()) < 1e-4


@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 99))
def test_what_q4_1_and_q8_0_hold_is_held_as_it_is(tiles: int, groups: int, seed: int) -> None:
    torch.manual_seed(seed)
    rows, columns = tiles * 16, groups * GROUP
    scale, minimum = (torch.rand(rows, groups) / 64 + 1e-3).half(), (-torch.rand(rows, groups) / 8).half()
    wide = scale.float().repeat_interleave(GROUP, 1)
    four = torch.randint(0, 16, (rows, columns))
    four.view(rows, groups, GROUP)[..., :2] = torch.tensor([0, 15])  # as llama.cpp makes them: from end to end
    values = four * wide + minimum.float().repeat_interleave(GROUP, 1)
    assert torch.equal(dequantised(held(WeightForm.INT4, values)), values)
    assert grouped_int4(values).scale.equal(scale)
    eight = torch.randint(-127, 128, (rows, columns))
    eight.view(rows, groups, GROUP)[..., 0] = 127
    assert torch.equal(dequantised(held(WeightForm.INT8, eight * wide)), eight * wide)
    assert grouped_int8(eight * wide).scale.equal(scale)


def random_groups(rows: int, columns: int, form: WeightForm, most: int) -> Grouped:
    """Numbers below `most`, of 15 or 127: no group reaches its ends."""
    groups, four = columns // GROUP, form is WeightForm.INT4
    numbers = torch.randint(1 if four else 1 - most, most, (rows, columns))
    minimum = torch.randn(rows, groups).half() if four else None
    return Grouped(numbers.to(torch.uint8 if four else torch.int8), torch.rand(rows, groups).half(), minimum)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), st.integers(1, 3), FORMS, FORMS, st.integers(2, 15))
def test_what_a_file_holds_is_held_whatever_its_groups_reach(
    lots: list[int], groups: int, form: WeightForm, kept: WeightForm, most: int
) -> None:
    rows = -(-sum(lots) // 16) * 16
    parts = [random_groups(lot, groups * GROUP, form, most) for lot in [*lots, rows - sum(lots)] if lot]
    values = torch.cat([part.values() for part in parts])
    linear = Keeper(CPU, torch.float32, kept).linear(iter(parts), (rows, groups * GROUP), None)
    want = values if form is kept else dequantised(held(kept, values))
    assert torch.equal(dequantised(linear), want)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=4), FORMS)
def test_parts_are_stacked(parts: list[int], form: WeightForm) -> None:
    weight, x = weight_of(sum(parts), 64, 1), torch.randn(3, 64)
    stacked = Keeper(CPU, torch.float32, form).linear(iter(torch.split(weight, parts)), (sum(parts), 64), None)
    assert torch.equal(stacked(x), held(form, weight)(x))


def test_whole_tiles_and_groups_are_packed_on_a_cpu() -> None:
    assert type(held(WeightForm.INT8, torch.randn(32, 64))) is PackedLinear
    assert type(held(WeightForm.INT4, torch.randn(32, 64))) is PackedLinear
    for form, shape, bits in (
        (WeightForm.INT8, (5, 64), 8),
        (WeightForm.INT4, (5, 64), 4),
        (WeightForm.INT4, (32, 48), 8),
    ):
        linear = held(form, torch.randn(shape))
        assert isinstance(linear, LowBitLinear)
        assert linear.weight.bits == bits


@pytest.mark.parametrize("form", [WeightForm.INT8, WeightForm.INT4])
@pytest.mark.parametrize("rows", [5, 16])
def test_zeros_stay_zeros(form: WeightForm, rows: int) -> None:
    assert not held(form, torch.zeros(rows, 64))(torch.randn(2, 64)).any()


@pytest.mark.parametrize("rows", [40, 48])
def test_rows_of_a_table_are_those_of_its_product(rows: int) -> None:
    table = Keeper(CPU, torch.float32, WeightForm.INT8).table([weight_of(rows, 64, 0)], (rows, 64))
    tokens = torch.tensor([3, 0, 39, 3])
    torch.testing.assert_close(table.rows(tokens), dequantised(table)[tokens])


# --- whole models ---


@pytest.mark.parametrize(("family", "changes"), FAMILIES, ids=NAMED)
def test_a_model_takes_the_bytes_that_were_counted(tmp_path: Path, family: str, changes: dict[str, object]) -> None:
    write_model(tmp_path, make_model(family, **changes))
    for form in WeightForm:
        opened = open_model(tmp_path, device=CPU, dtype=torch.float32, form=form)
        weights = opened.load().decoder.weights
        assert opened.weights_bytes() == weights.bytes
        assert weights.parameters == load_model(tmp_path, device=CPU, dtype=torch.float32).decoder.weights.parameters


@pytest.mark.parametrize("form", list(WeightForm))
def test_every_form_answers(tiny: Tiny, form: WeightForm) -> None:
    engine = Engine(load_model(tiny.folder, device=CPU, dtype=torch.float32, form=form), EngineConfig(256))
    session = engine.open_session("system")
    engine.add_user(session, MessageKey("q"), "question")
    engine.generate(session, MessageKey("a"), SamplingParams(temperature=0, max_tokens=12))
    events = []
    while engine.busy:
        events += engine.step()
    assert isinstance(events[-1], AnswerFinished)
    assert events[-1].new_tokens > 0


def test_the_starter_is_held_as_its_file_holds_it(starter_path: Path) -> None:
    opened = open_model(starter_path, device=CPU, dtype=torch.float32, form=None)
    assert opened.keeper.form is WeightForm.INT4
    assert open_model(starter_path, device=CPU, dtype=torch.bfloat16, form=None).keeper.form is WeightForm.FULL


def test_the_starter_is_held_as_its_file_holds_it_on_a_gpu_too(
    starter_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.model.load.serves", lambda _device: True)
    opened = open_model(starter_path, device=CPU, dtype=torch.bfloat16, form=None)
    assert opened.keeper.form is WeightForm.INT4


Q4_1, Q8_0 = GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q8_0
SHAPE = {"hidden_size": 128, "intermediate_size": 160, "num_attention_heads": 4, "tie_word_embeddings": True}


def with_short_groups(folder: Path, kind: GGMLQuantizationType, family: str, vocab: int) -> Path:
    """A file whose groups reach half of what their numbers could say, as importance matrices make them."""
    file = folder / "short.gguf"
    write_gguf(file, make_model(family, vocab_size=vocab, **SHAPE), kind, ends=Q8_0)
    for tensor in GGUFReader(file, "r+").tensors:
        if tensor.tensor_type == Q4_1:
            tensor.data.reshape(-1, 20)[:, 4:] &= 0x77
        elif tensor.tensor_type == Q8_0:
            numbers = tensor.data.reshape(-1, 34)[:, 2:].view(np.int8)
            numbers //= 2
    return file


@pytest.mark.parametrize("vocab", [272, 275], ids=["whole tiles", "a part of a tile"])
@pytest.mark.parametrize("family", ["llama", "qwen2"], ids=["interleaved", "biased"])
@pytest.mark.parametrize("kind", [Q4_1, Q8_0])
def test_a_file_is_held_as_it_is_whatever_its_groups_reach(
    tmp_path: Path, kind: GGMLQuantizationType, family: str, vocab: int
) -> None:
    file = with_short_groups(tmp_path, kind, family, vocab)
    own, full = (load_model(file, device=CPU, dtype=torch.float32, form=form) for form in (None, WeightForm.FULL))
    weights = zip(every_linear(own), every_linear(full), strict=True)
    for packed, exact in weights:
        assert isinstance(exact, DenseLinear)
        assert torch.equal(dequantised(packed)[: len(exact.weight)], exact.weight)
    tokens = [(7 * i) % 272 for i in range(40)]
    torch.testing.assert_close(read(own, tokens), read(full, tokens), atol=1e-3, rtol=1e-3)


def every_linear(model: LoadedModel) -> list[Linear]:
    weights = model.decoder.weights
    return [weights.embedding, weights.head, *(linear for layer in weights.layers for linear in layer.linears)]


def test_in_full_until_the_kernels_are_compiled(starter_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.model.load.on_disk", lambda: False)
    opened = open_model(starter_path, device=CPU, dtype=torch.float32, form=None)
    assert opened.keeper.form is WeightForm.FULL


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_quality_on_the_starter_model(starter_path: Path) -> None:
    exact = load_model(starter_path, device=CPU, dtype=torch.float32)
    tokens = exact.tokenizer.encode_plain(TEXT.read_text(encoding="utf-8")[3000:])[:400]
    want = read(exact, tokens)
    for form, worst in ((WeightForm.INT8, 0.004), (WeightForm.INT4, 1e-5)):
        found = quality(want, read(load_model(starter_path, device=CPU, dtype=torch.float32, form=form), tokens))
        assert found.kl < worst
        assert found.same_top > 92
