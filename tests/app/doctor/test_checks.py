from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from app.doctor import (
    chroma,
    disk,
    gpu_memory,
    models,
    network,
    probe,
    python,
    sqlite,
    terminal,
    tesseract,
    torch_cuda,
    triton,
)
from app.doctor.check import Check, Status
from app.doctor.probe import Accelerator
from app.doctor.run import exit_code, run_checks
from app.models.manifest import ModelEntry, ModelFile, ModelKind, Wheel
from app.models.verify import STAMP
from app.paths import Paths

CPU = Accelerator(torch="2.13.0+cpu", triton="3.7.1")
GPU = Accelerator(
    torch="2.13.0", cuda="13.0", cuda_works=True, device="A GPU", capability="9.0",
    total_bytes=8 << 30, free_bytes=6 << 30, triton="3.7.1",
)  # fmt: skip


def test_python() -> None:
    assert python.check().status is Status.OK
    old = python.check((3, 10, 14))
    assert old.status is Status.FAILURE
    assert "3.10.14" in old.detail
    assert "3.11" in old.fix


def test_sqlite() -> None:
    assert sqlite.check().status is Status.OK
    assert sqlite.check((3, 34, 1)).status is Status.FAILURE


def test_sqlite_without_full_text_search(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bare:
        def execute(self, _: str) -> None:
            raise sqlite.sqlite3.OperationalError("no such module: fts5")

        def close(self) -> None:
            return

    monkeypatch.setattr(sqlite.sqlite3, "connect", lambda _: Bare())
    check = sqlite.check()
    assert check.status is Status.FAILURE
    assert "no such module: fts5" in check.detail


def without(missing: str) -> Callable[[str], str]:
    def version_of(name: str) -> str:
        if name == missing:
            raise metadata.PackageNotFoundError(name)
        return metadata.version(name)

    return version_of


def test_chroma() -> None:
    assert chroma.check().status is Status.OK
    gone = chroma.check(without("chromadb"))
    assert gone.status is Status.FAILURE
    assert "missing or of another version: chromadb" in gone.detail
    old = chroma.check(lambda name: "0.4.0" if name == "chromadb" else metadata.version(name))
    assert old.status is Status.FAILURE
    assert "chromadb<1.6,>=1.5.9" in old.fix


def test_torch() -> None:
    assert torch_cuda.check(GPU).status is Status.OK
    assert "A GPU (capability 9.0)" in torch_cuda.check(GPU).detail
    assert torch_cuda.check(CPU).status is Status.WARNING
    assert "nvidia-smi" in torch_cuda.check(Accelerator(torch="2.13.0", cuda="13.0")).fix
    assert "driver" in torch_cuda.check(Accelerator(torch="2.13.0", cuda="13.0", cuda_error="too old")).fix
    broken = torch_cuda.check(Accelerator(torch_error="libc.so: no"))
    assert broken.status is Status.FAILURE
    assert "libc.so: no" in broken.detail


def test_triton() -> None:
    assert triton.check(GPU) == Check("Triton", Status.OK, "triton 3.7.1")
    assert triton.check(CPU).detail == "triton 3.7.1, unused without a GPU"
    assert triton.check(dataclasses.replace(CPU, triton="")).status is Status.OK
    assert triton.check(dataclasses.replace(GPU, triton="", triton_error="no")).status is Status.WARNING
    assert triton.check(Accelerator(torch_error="no")).status is Status.WARNING


def test_gpu_memory() -> None:
    assert gpu_memory.check(GPU) == Check("GPU memory", Status.OK, "6.0 of 8.0 GiB free on A GPU")
    assert gpu_memory.check(dataclasses.replace(GPU, free_bytes=1 << 20)).status is Status.WARNING
    assert gpu_memory.check(CPU).status is Status.OK


def test_the_probe_sees_the_installed_torch_without_loading_it_here() -> None:
    code = (
        "import sys; from app.doctor.probe import probe; seen = probe();"
        "print(seen.torch, seen.triton, 'torch' in sys.modules)"
    )
    said = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert said == [metadata.version("torch"), metadata.version("triton"), "False"]


@pytest.mark.parametrize(
    ("torch", "says"),
    [
        ("import os; os._exit(7)", "ended the process with code 7"),
        ("raise ImportError('libcudart.so.13: cannot open\\nsecond line')", "libcudart.so.13: cannot open"),
        ("print('noise'); raise OSError()", "OSError"),
    ],
)
def test_a_broken_torch_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torch: str, says: str) -> None:
    (tmp_path / "torch.py").write_text(torch)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    seen = probe.probe.__wrapped__()
    assert seen.torch == ""
    assert seen.torch_error.endswith(says)
    assert torch_cuda.check(seen).status is Status.FAILURE


def test_a_torch_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("import threading; threading.Event().wait()")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(probe, "TIMEOUT_SECONDS", 0.5)
    assert "did not answer" in probe.probe.__wrapped__().torch_error


@pytest.fixture
def entry() -> ModelEntry:
    file = ModelFile("a/w.bin", "w.bin", 5, hashlib.sha256(b"right").hexdigest())
    wheel = Wheel("a", "1", 5_000_000)
    return ModelEntry("a", "A", ModelKind.CHAT, "llama", "MIT", "", "a", "w.bin", wheel, (file,))


def test_models(tmp_path: Path, entry: ModelEntry) -> None:
    absent = models.check(entry, tmp_path)
    assert absent.status is Status.WARNING
    assert "5 MB" in absent.fix
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "w.bin").write_bytes(b"right")
    assert models.check(entry, tmp_path).status is Status.OK
    # Same size, same stamp: only reading it all can tell.
    stamp = (tmp_path / "a" / STAMP).read_text()
    (tmp_path / "a" / "w.bin").write_bytes(b"wrong")
    (tmp_path / "a" / STAMP).write_text(stamp)
    wrong = models.check(entry, tmp_path)
    assert wrong.status is Status.FAILURE
    assert "w.bin is damaged" in wrong.detail
    (tmp_path / "a" / "w.bin").unlink()
    assert "is missing" in models.check(entry, tmp_path).detail


def fake_tesseract(folder: Path, script: str) -> None:
    path = folder / "tesseract"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_tesseract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    fake_tesseract(tmp_path, '[ "$1" = --version ] && echo tesseract 5.9 || printf "List\\neng\\nosd\\nchi_sim\\n"')
    good = tesseract.check("eng+chi_sim")
    assert good == Check("Tesseract", Status.OK, f"5.9, {tmp_path}/tesseract; languages: chi_sim, eng")
    lacking = tesseract.check("eng+deu+chi_tra")
    assert lacking.status is Status.WARNING
    assert "tesseract-ocr-deu tesseract-ocr-chi-tra" in lacking.fix
    for broken in ("exit 1", "exit 0", "kill -9 $$"):
        fake_tesseract(tmp_path, broken)
        assert "does not run" in tesseract.check().detail
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert "not installed" in tesseract.check().detail


def test_the_real_tesseract() -> None:
    if shutil.which("tesseract") is None:
        pytest.skip("Tesseract is not installed")
    assert "eng" in tesseract.check("eng").detail


def test_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    assert disk.check(data).detail.endswith("made at the first start")
    assert not data.exists()
    data.mkdir(mode=0o700)
    assert disk.check(data).status is Status.OK
    assert list(data.iterdir()) == []
    data.chmod(0o755)
    assert disk.check(data).fix == f"Make it private: `chmod 700 {data}`."
    data.chmod(0o700)
    for free, status in ((10 << 20, Status.FAILURE), (500 << 20, Status.WARNING), (5 << 30, Status.OK)):
        usage = shutil._ntuple_diskusage(10 << 30, (10 << 30) - free, free)  # type: ignore[attr-defined]
        monkeypatch.setattr(shutil, "disk_usage", lambda _, usage=usage: usage)
        assert disk.check(data).status is status
    (tmp_path / "file").write_text("")
    assert "is a file" in disk.check(tmp_path / "file" / "data").detail


def test_a_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(disk.tempfile, "TemporaryFile", refuse)
    check = disk.check(tmp_path)
    assert check.status is Status.FAILURE
    assert "AIOS_CHAT_HOME" in check.fix


def test_terminal() -> None:
    good = terminal.Terminal({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, 120, 40, "utf-8", True)
    check = terminal.check(good)
    assert check == Check("Terminal", Status.OK, "TERM=xterm-256color, 16 million colours, utf-8, 120x40")
    for change, says, fix in (
        ({"environ": {"TERM": "dumb"}}, "type is not known", "Set TERM"),
        ({"environ": {}}, "TERM=unset", "Set TERM"),
        ({"encoding": "ANSI_X3.4-1968"}, "not UTF-8", "Set LANG"),
        ({"columns": 30}, "window is small", "Enlarge"),
        ({"is_terminal": False}, "not a terminal", "aios-chat ask"),
        ({"environ": {"TERM": "xterm", "TMUX": "x"}}, "inside tmux", "tmux.conf"),
    ):
        seen = terminal.check(dataclasses.replace(good, **change))  # type: ignore[arg-type]
        assert seen.status is Status.WARNING
        assert says in seen.detail
        assert fix in seen.fix
    quiet = terminal.check(dataclasses.replace(good, environ={"TERM": "tmux-256color", "TMUX": "x", "NO_COLOR": ""}))
    assert quiet.status is Status.OK
    assert "256 colours" in quiet.detail
    assert "NO_COLOR" in quiet.detail


def test_network_says_when_it_is_used() -> None:
    check = network.check({"HTTPS_PROXY": "http://user:secret@proxy", "HF_HUB_OFFLINE": "1"})
    assert "only to fetch a model" in check.detail
    assert "the proxy of HTTPS_PROXY" in check.detail
    assert "secret" not in check.detail
    assert "HF_HUB_OFFLINE" in check.detail


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_network_finds_a_listening_socket_of_ours(tmp_path: Path, family: socket.AddressFamily, address: str) -> None:
    """The real tables of the kernel, with this very process under the name of one of ours."""
    ours = tmp_path / "77"
    (tmp_path / "net").mkdir()
    ours.mkdir()
    (ours / "cmdline").write_bytes(b"/usr/bin/python\0-P\0-m\0app.host.memory_child\x003\x004\0")
    (ours / "fd").symlink_to("/proc/self/fd")

    def look() -> Check:
        for table in ("tcp", "tcp6"):
            (tmp_path / "net" / table).write_text(Path("/proc/net", table).read_text())
        return network.check({}, tmp_path)

    assert look().status is Status.OK
    try:
        server = socket.create_server((address, 0), family=family)
    except OSError:
        pytest.skip(f"no {address} here")
    with server:
        check = look()
        assert check.status is Status.WARNING
        assert f"port {server.getsockname()[1]} (process 77)" in check.detail
        (ours / "cmdline").write_bytes(b"/usr/bin/python\0-m\0http.server\0")
        assert look().status is Status.OK


def test_network_without_the_kernels_tables(tmp_path: Path) -> None:
    assert "cannot be looked up" in network.check({}, tmp_path).detail


def test_every_check_runs_here_and_the_list_is_complete(tmp_path: Path) -> None:
    seen = list(run_checks(Paths(tmp_path / "data", tmp_path / "settings.toml")))
    assert [check.name for check in seen] == [
        "Python", "Terminal", "Data folder", "SQLite", "Chroma", "Tesseract", "Model embedder", "Model starter",
        "Network", "PyTorch", "Triton", "GPU memory",
    ]  # fmt: skip
    assert exit_code(seen) == 0
    assert all(check.fix for check in seen if check.status is not Status.OK)
    assert not (tmp_path / "data").exists()


def test_a_check_that_breaks_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Check:
        raise RuntimeError("boom")

    monkeypatch.setattr(sqlite, "check", broken)
    monkeypatch.setattr("app.doctor.run.probe", lambda: GPU)
    seen = list(run_checks(Paths(tmp_path, tmp_path / "settings.toml")))
    assert len(seen) == 12
    broke = next(check for check in seen if check.name == "SQLite")
    assert broke.status is Status.FAILURE
    assert "boom" in broke.detail
    assert exit_code(seen) == 1


def test_the_doctor_loads_nothing_heavy() -> None:
    code = (
        "import sys, app.doctor.run;"
        "print([m for m in ('torch', 'numpy', 'chromadb', 'textual', 'filelock') if m in sys.modules])"
    )
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    assert subprocess.check_output([sys.executable, "-c", code], text=True, env=environ).strip() == "[]"
