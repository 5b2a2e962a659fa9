"""The plan: counted before anything is loaded, kept to the byte, refused with its numbers; and the peak of loading."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import engine.model.load
import engine.plan
from engine.cache.formats.kv_format import KvFormat
from engine.config import EngineConfig
from engine.engine import Engine
from engine.model.linear import WeightForm
from engine.model.load import open_model
from engine.plan import NoRoomError, free_memory, plan, planned
from engine.sampling.params import SamplingParams
from engine.types import MessageKey
from tests.engine.helpers import one_sentence
from tests.engine.tiny import CPU, Tiny, write_llama

CONFIG = EngineConfig(quota_tokens=256, page_size=16, sessions=2)


@pytest.mark.parametrize("name", list(KvFormat))
def test_the_windows_that_are_planned_are_those_that_are_taken(tiny: Tiny, name: KvFormat) -> None:
    config = replace(CONFIG, kv_format=name)
    opened = open_model(tiny.folder, device=CPU, dtype=torch.bfloat16)
    assert plan(opened, config).kv_bytes == Engine(opened.load(), config).pages.bytes


@pytest.mark.parametrize("form", list(WeightForm))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_planned_is_what_is_taken(tiny: Tiny, form: WeightForm, dtype: torch.dtype) -> None:
    opened = open_model(tiny.folder, device=CPU, dtype=dtype, form=form)
    counted = plan(opened, CONFIG)
    running = Engine(opened.load(), CONFIG)
    assert counted.weights_bytes == running.model.decoder.weights.bytes
    assert counted.kv_bytes == running.pages.bytes


def test_the_kv_never_grows_past_the_plan(tiny: Tiny) -> None:
    opened = open_model(tiny.folder, device=CPU, dtype=torch.float32)
    counted = plan(opened, CONFIG)
    running = Engine(opened.load(), CONFIG)
    before = (running.pages.k.data_ptr(), running.pages.v.data_ptr())
    sessions = [running.open_session("You are brief.") for _ in range(2)]
    rng = random.Random(5)
    for turn in range(6):
        for session in sessions:
            running.add_user(session, MessageKey(f"q{turn}"), "word " * rng.randrange(5, 60))
            running.generate(session, MessageKey(f"a{turn}"), SamplingParams(max_tokens=40, seed=turn))
        while running.busy:
            running.step()
            held = [t.untyped_storage() for t in (running.pages.k, running.pages.v)]
            assert sum(storage.nbytes() for storage in held) == counted.kv_bytes
    assert all(running.window(session).evicted > 0 for session in sessions)
    assert before == (running.pages.k.data_ptr(), running.pages.v.data_ptr())


def test_a_plan_that_does_not_fit_is_refused_with_its_numbers(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_model(tiny.folder, device=CPU, dtype=torch.float32)
    need = plan(opened, CONFIG).total_bytes
    monkeypatch.setattr(engine.plan, "free_memory", lambda _device: need)
    plan(opened, CONFIG).check()
    huge = EngineConfig(quota_tokens=2**22, page_size=32, sessions=64)
    monkeypatch.setattr(engine.plan, "free_memory", lambda _device: 3 * 2**30)
    with pytest.raises(NoRoomError) as refused:
        plan(opened, huge).check()
    sentence = one_sentence(refused.value)
    assert f"{plan(opened, huge).kv_bytes / 2**30:.2f} GiB" in sentence
    assert "3.00 GiB are free" in sentence


def test_a_file_that_fits_only_as_it_is_is_held_so_before_its_kernels_are_compiled(
    starter_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.model.load, "on_disk", lambda: False)
    monkeypatch.setattr(engine.model.load, "compile_in_background", lambda: None)
    opened = open_model(starter_path, device=CPU, dtype=torch.float32, form=None)
    in_full = plan(opened, CONFIG).total_bytes
    for free, form in ((in_full, WeightForm.FULL), (in_full - 1, WeightForm.INT4)):
        monkeypatch.setattr(engine.plan, "free_memory", lambda _device, free=free: free)
        model, counted = planned(opened, CONFIG)
        assert (model.keeper.form, counted.fits) == (form, True)
        assert counted.weights_bytes == model.weights_bytes()
    asked = open_model(starter_path, device=CPU, dtype=torch.float32, form=WeightForm.FULL)
    assert not planned(asked, CONFIG)[1].fits  # whoever asks for them in full is told that they do not fit


def test_free_memory_is_what_the_machine_has() -> None:
    lines = Path("/proc/meminfo").read_text().splitlines()
    total = int(next(line for line in lines if line.startswith("MemTotal")).split()[1]) * 1024
    assert 2**26 < free_memory(CPU) <= total


# --- the peak of loading ---

LOADER = """
import json, sys, threading
from pathlib import Path
import torch
from engine.model.linear import WeightForm
from engine.model.load import load_model, open_model
from kernels.cpu.ready import wait_compiled

def kept(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name)) * 1024

torch.set_num_threads(1)
how = {"device": torch.device("cpu"), "dtype": torch.float32, "form": WeightForm(sys.argv[3])}
load_model(Path(sys.argv[1]), **how)  # what libraries take at their first use is not the weights'
wait_compiled(280)
opened = open_model(Path(sys.argv[2]), **how)
Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
before = kept("VmRSS")
weights = opened.load().decoder.weights.bytes
print(json.dumps([weights, kept("VmHWM") - before]))
"""


def peak_of_loading(warm: Path, path: Path, form: WeightForm) -> float:
    """The most resident memory while loading, file-backed pages included, per byte of weights as they are held."""
    command = [sys.executable, "-c", LOADER, str(warm), str(path), form.value]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    weights, peak = json.loads(done.stdout)
    return float(peak / weights)


@pytest.mark.parametrize("form", list(WeightForm))
def test_loading_a_sharded_folder_stays_under_1_3_of_the_weights(tmp_path: Path, tiny: Tiny, form: WeightForm) -> None:
    sizes = {"vocab_size": 20000, "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8}
    heads = {"num_attention_heads": 16, "num_key_value_heads": 4}
    write_llama(tmp_path, shard_size="60MB", **sizes, **heads)
    assert peak_of_loading(tiny.folder, tmp_path, form) < 1.3


@pytest.mark.slow
@pytest.mark.parametrize("form", list(WeightForm))
def test_loading_the_starter_stays_under_1_3_of_the_weights(starter_path: Path, tiny: Tiny, form: WeightForm) -> None:
    assert peak_of_loading(tiny.folder, starter_path, form) < 1.3
