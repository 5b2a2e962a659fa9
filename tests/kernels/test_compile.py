"""The compile check finds what it is there to find."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernels.compile import SHARED_KB, Report, build, cases
from kernels.paged_attention import MAX_HEAD_DIM
from kernels.runtime import INTERPRETED, MISSING

needs_compiler = pytest.mark.skipif(bool(MISSING) or INTERPRETED, reason="no Triton compiler in this process")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


@needs_compiler
@pytest.mark.parametrize("target", [80, 120])
def test_a_good_kernel_is_reported_with_its_numbers(target):
    report = build(next(cases()), target)
    assert report.bad == ""
    assert 16 <= report.registers <= 255
    assert 0 < report.shared < SHARED_KB[target] * 1024


@needs_compiler
def test_a_kernel_that_does_not_compile_is_reported():
    case = next(cases())
    report = build(replace(case, constants=dict(case.constants) | {"BLOCK_D": 48}), 90)
    assert "power of 2" in report.bad


@needs_compiler
def test_a_spill_is_seen():
    """One warp for a tile that is meant for four."""
    case = next(case for case in cases() if case.constants["HEAD_DIM"] == MAX_HEAD_DIM)
    report = build(replace(case, num_warps=1), 86)
    assert report.spilled > 0
    assert report.bad == f"spills {report.spilled} bytes"


def test_shared_memory_is_held_against_the_target():
    assert Report(90, "large", 40, 0, 100 * 1024).bad == ""
    assert Report(120, "large", 40, 0, 100 * 1024).bad == "shared memory over 99 KB"


def test_every_kernel_family_is_built():
    names = [case.name for case in cases()]
    assert len(set(names)) == len(names)
    attention = {"decode_split", "decode_packed", "merge_splits", "prefill", "quantise"}
    low_bit = {"low_bit_linear", "sum_splits", "low_bit_rows"}
    others = {"rms_norm", "add_rms_norm", "rope", "store", "gated", "sample", "edit_logits"}
    assert {name.split()[0] for name in names} == attention | low_bit | others
