"""The memory's promises: nothing acknowledged is lost, derived files may be lost at any time, nothing calls out."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from app.store.store import Store
from memory import Memory
from memory.types import Message, SourceId
from tests.memory.programs.quick_embedder import QuickEmbedder

ROOT = Path(__file__).parents[2]
KILLS = 20
QUESTIONS = ("lamp 17 w4 w90 w333", "w5 w6 w7 w8", "w700 and w12", "lamp 1100 w1 w899", "w250 w251 w252 lamp")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory.memory.Embedder", QuickEmbedder)


def written(number: int) -> tuple[str, str]:
    """The answer as it was shown on the way, and whole."""
    return f"Written down: zorb{number}", f"Written down: zorb{number}, blue."


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_twenty_kills_lose_nothing_acknowledged(tmp_path: Path, embedder_folder: Path) -> None:
    chance = random.Random(5)
    told: list[tuple[str, int]] = []
    for kill in range(KILLS):
        arguments = [str(tmp_path), str(embedder_folder), str(1000 * kill), "late" if kill % 2 else "early"]
        with subprocess.Popen(
            [sys.executable, "-m", "tests.memory.programs.writes", *arguments],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        ) as child:
            assert child.stdout is not None
            heard = [child.stdout.readline() for _ in range(chance.randint(1, 25))]
            child.send_signal(signal.SIGKILL)
            heard += child.stdout.readlines()
        assert child.returncode == -signal.SIGKILL
        whole = [line.split() for line in heard if line.endswith("\n")]
        told += [(what, int(number)) for what, number in whole]
    assert len({number // 1000 for _, number in told}) == KILLS

    store = Store.open(tmp_path / "chats.db")
    store.recover()
    texts = [message.text for chat in store.chats() for message in store.path(chat.id)]
    store.close()
    memory = Memory.open(tmp_path / "memory", embedder_folder)
    assert memory.wait_until_indexed(240)
    assert memory.counts().unindexed == 0
    held = [passage.text for some in memory.passages() for passage in some]
    for what, number in told:
        if what == "asked":
            assert texts.count(f"Note {number}: the zorb{number} is blue.") == 1
        elif what in ("shown", "answered"):
            assert sum(text in written(number) for text in texts) == 1
        elif what == "remembered":
            assert held.count(f"Note {number}: the zorb{number} is blue.") == 1
            assert sum(text in written(number) for text in held) == 1
            found = [hit.passage.text for hit in memory.search(f"zorb{number}", 20)]
            assert f"Note {number}: the zorb{number} is blue." in found
        else:
            files = [hit.passage for hit in memory.search(f"krill{number}", 5) if f"krill{number} " in hit.passage.text]
            assert [passage.source.title for passage in files] == [f"file{number}.txt"]
    memory.close()


def remembered(folder: Path, embedder: Path, turns: int) -> None:
    """A talk whose every turn is made of words of its own, so that no two are equally near to a question."""
    memory = Memory.open(folder, embedder)
    chance = random.Random(3)
    texts = [f"Lamp {n}: " + " ".join(f"w{chance.randrange(900)}" for _ in range(12)) for n in range(turns)]
    memory.remember(
        [
            Message(SourceId("c"), "Talk", f"m{n}", f"m{n - 1}" if n else None, "user", text, 1e9 + n)
            for n, text in enumerate(texts)
        ]
    )
    assert memory.wait_until_indexed(240)
    memory.close()


def top_tens(memory: Memory) -> list[list[str]]:
    return [[hit.passage.id for hit in memory.search(question, 10)] for question in QUESTIONS]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, embedder_folder: Path) -> tuple[Path, list[list[str]]]:
    """A memory so large that Chroma has written its index down, and what it answers."""
    folder = tmp_path_factory.mktemp("whole") / "memory"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("memory.memory.Embedder", QuickEmbedder)
        remembered(folder, embedder_folder, 1200)
        memory = Memory.open(folder, embedder_folder)
        assert memory.wait_until_indexed(240)
        answers = top_tens(memory)
        memory.close()
    return folder, answers


def _spoil(file: Path, how: str) -> None:
    size = file.stat().st_size
    if how == "removed":
        file.unlink()
    elif how == "emptied":
        file.write_bytes(b"")
    elif how == "cut":
        file.write_bytes(file.read_bytes()[: size // 2])
    else:
        file.write_bytes(random.Random(size).randbytes(size))


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("how", ["removed", "emptied", "cut", "scribbled"])
def test_each_file_of_chroma_may_be_damaged(
    how: str, whole: tuple[Path, list[list[str]]], embedder_folder: Path, tmp_path: Path
) -> None:
    folder, answers = whole
    files = sorted(file.relative_to(folder) for file in (folder / "vectors").rglob("*") if file.is_file())
    assert len(files) >= 4
    for number, name in enumerate(files):
        copy = tmp_path / str(number)
        shutil.copytree(folder, copy)
        _spoil(copy / name, how)
        memory = Memory.open(copy, embedder_folder)
        assert "Lamp 17:" in memory.search("lamp 17", 1)[0].passage.text, name
        assert memory.wait_until_indexed(240)
        assert memory.counts().problem == "", name
        assert memory.counts().unindexed == 0, name
        assert top_tens(memory) == answers, name
        memory.close()


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_an_index_that_killed_its_reader_is_not_read_again(
    whole: tuple[Path, list[list[str]]], embedder_folder: Path, tmp_path: Path
) -> None:
    folder, answers = whole
    shutil.copytree(folder, tmp_path / "memory")
    for file in (tmp_path / "memory" / "vectors").rglob("*.bin"):
        _spoil(file, "scribbled")
    (tmp_path / "memory" / "vectors.seal").unlink()  # as after a crash
    code = (
        "import sys; from pathlib import Path; import memory.memory; "
        "from tests.memory.programs.quick_embedder import QuickEmbedder; memory.memory.Embedder = QuickEmbedder; "
        "m = memory.memory.Memory.open(Path(sys.argv[1]), Path(sys.argv[2])); m.wait_until_indexed(); m.close()"
    )
    for _ in range(2):
        arguments = [sys.executable, "-c", code, str(tmp_path / "memory"), str(embedder_folder)]
        done = subprocess.run(arguments, cwd=ROOT, capture_output=True, check=False)
        if done.returncode == 0:
            break
        assert done.returncode < 0, done.stderr
    memory = Memory.open(tmp_path / "memory", embedder_folder)
    assert memory.wait_until_indexed(240)
    assert (memory.counts().problem, memory.counts().unindexed) == ("", 0)
    assert top_tens(memory) == answers
    memory.close()


_WATCHED = """
import sys
from pathlib import Path

calls = []
sys.addaudithook(lambda name, args: calls.append((name, args)) if name in WATCHED else None)

from memory import Memory
from memory.types import Message, RecallRequest, SourceId

folder = Path(sys.argv[1])
memory = Memory.open(folder / "memory", Path(sys.argv[2]))
file = folder / "pump.md"
file.write_text("# Pump\\n\\nThe serial number of the pump is QX-7719.\\n")
memory.ingest(file, file.name, str(file), lambda progress: None, lambda: False)
memory.remember([Message(SourceId("c"), "Talk", "m1", None, "user", "My dog is called Biscuit.", 1.0)])
assert memory.wait_until_indexed(240)
for question in ("What is the name of my dog?", "What is the serial number of the pump?", "它是什么"):
    recall = memory.recall(RecallRequest(question, SourceId("d")), len)
    memory.cite(question, "Biscuit, QX-7719", [hit.passage for hit in recall.hits])
memory.forget(SourceId("c"))
memory.close()
print(calls)
"""


@pytest.mark.slow
def test_nothing_calls_out(tmp_path: Path, embedder_folder: Path) -> None:
    watched = {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "socket.bind"}
    code = f"WATCHED = {watched!r}\n{_WATCHED}"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), str(embedder_folder)], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
