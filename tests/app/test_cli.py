"""The command line: bad input is one sentence and an exit code; nothing heavy is imported for `--help`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.store.store import Store

HEAVY = ("textual", "torch", "chromadb", "transformers", "PIL", "numpy", "sentence_transformers")


def aios(home: Path, *arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `aios-chat` with its data under `home`."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("AIOS_CHAT_")}
    return subprocess.run(
        [sys.executable, "-m", "app", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        env={**clean, "AIOS_CHAT_HOME": str(home), **environment},
        timeout=120,
        check=False,
    )


def is_one_sentence(stderr: str) -> bool:
    """One line that begins with the program's name; no traceback, no box."""
    lines = stderr.strip().splitlines()
    return len(lines) == 1 and lines[0].startswith("aios-chat: ") and lines[0].endswith((".", "!"))


@pytest.mark.parametrize(
    ("arguments", "code", "names"),
    [
        (["--frobnicate"], 2, "--frobnicate"),
        (["dance"], 2, "dance"),
        (["ask"], 2, "question"),
        (["search"], 2, "query"),
        (["search", "x", "--kind", "movie"], 2, "movie"),
        (["search", "x", "--limit", "none"], 2, "--limit"),
        (["--window", "3", "chats"], 2, "window_tokens"),
        (["--temperature", "hot", "chats"], 2, "--temperature"),
        (["--temperature", "-4", "chats"], 2, "temperature"),
        (["export", "no such chat"], 1, "no such chat"),
        (["--chat", "no such chat"], 1, "no such chat"),
        (["ask", "hello", "--chat", "no such chat"], 1, "no such chat"),
        (["--model", "/no/such/model.gguf", "ask", "hello"], 1, "/no/such/model.gguf"),
        (["--model", "gpt-5 turbo", "ask", "hello"], 1, "gpt-5 turbo"),
        (["--recall", "maybe", "chats"], 2, "maybe"),
        (["bench", "--turns", "1"], 2, "--turns"),
        (["bench", "--turns", "many"], 2, "--turns"),
        (["bench", "--json", "/no/such/folder/figures.json"], 1, "/no/such/folder"),
        (["bench", "--svg", "/"], 1, "is a folder"),
        (["bench", "--json", "same", "--svg", "./same"], 2, "same"),
        (["--model", "/no/such/model.gguf", "bench"], 1, "/no/such/model.gguf"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, arguments: list[str], code: int, names: str) -> None:
    done = aios(tmp_path, *arguments)
    assert done.returncode == code, done.stderr
    assert is_one_sentence(done.stderr), done.stderr
    assert names in done.stderr
    assert done.stdout == ""


def test_bad_settings_file(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text("window_tokens = 'big'\n")
    done = aios(tmp_path, "chats")
    assert done.returncode == 2
    assert is_one_sentence(done.stderr)
    assert "big" in done.stderr


def test_a_data_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = aios(tmp_path / "file" / "data", "chats")
    assert done.returncode == 1
    assert is_one_sentence(done.stderr)


def test_a_damaged_chats_db(tmp_path: Path) -> None:
    (tmp_path / "chats.db").write_bytes(b"this is no database" * 100)
    done = aios(tmp_path, "chats")
    assert done.returncode == 1
    assert is_one_sentence(done.stderr)
    assert "chats.db" in done.stderr
    assert (tmp_path / "chats.db").read_bytes() == b"this is no database" * 100


def test_a_closed_pipe_is_no_error_to_read(tmp_path: Path) -> None:
    command = f"{sys.executable} -m app --help | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.startswith("Usage: aios-chat")
    assert "Traceback" not in done.stderr


def test_version_and_empty_lists(tmp_path: Path) -> None:
    assert aios(tmp_path, "--version").stdout.startswith("aios-chat ")
    assert json.loads(aios(tmp_path, "chats", "--json").stdout) == []
    assert json.loads(aios(tmp_path, "favorites", "--json").stdout) == []


def test_what_is_pinned_is_listed_in_the_order_of_the_chat(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "chats.db")
    chat = store.create_chat("Trip")
    first, second = (store.add_user_message(chat.id, text) for text in ("the gate\n is green", "the door is blue"))
    assert aios(tmp_path, "pinned", "Trip").stdout == ""
    for message in (second, first):
        store.pin(message.id, True)
    store.close()
    told = aios(tmp_path, "pinned", "Trip").stdout
    assert told.index("the gate is green") < told.index("the door is blue")
    assert [m["id"] for m in json.loads(aios(tmp_path, "pinned", "Trip", "--json").stdout)] == [first.id, second.id]
    refused = aios(tmp_path, "pinned", "Nowhere")
    assert refused.returncode != 0
    assert "There is no chat 'Nowhere'" in refused.stderr


def test_models_are_listed_without_fetching_any(tmp_path: Path) -> None:
    rows = json.loads(aios(tmp_path, "models", "--json").stdout)
    assert [row["name"] for row in rows] == ["starter", "embedder"]
    assert not any(row["present"] for row in rows)
    # 2 x 30 layers x 3 KV heads x 64 x 2 bytes
    assert rows[0]["kv_bytes_per_token"] == 23040
    costs = {cost["format"]: cost["bytes_per_token"] for cost in rows[0]["kv_formats"]}
    assert costs == {"auto": 23040, "full": 46080, "int8": 90 * 132, "k8v4": 90 * 100, "int4": 90 * 68, "tq3": 90 * 52}
    told = aios(tmp_path, "--window", "1024", "models").stdout
    assert "weights in memory: full 513 MiB, int8 136 MiB, int4 92 MiB" in told
    assert (
        "tokens in the same memory by page format: auto 1,024, full 512, int8 1,985, k8v4 2,621, int4 3,855, tq3 5,041"
        in told
    )


@pytest.mark.parametrize(
    "module",
    ["app.cli", "app.settings", "app.desk", "app.commands.ask", "app.commands.bench", "app.commands.machine"],
)
def test_nothing_heavy_is_imported(module: str) -> None:
    code = f"import sys, {module}; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_the_first_frame_waits_for_textual_only() -> None:
    later = (*HEAVY, "app.desk", "app.tui.commands", "markdown_it", "sqlite3")
    code = f"import sys, app.commands.screen; print([m for m in {later!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "['textual']"
