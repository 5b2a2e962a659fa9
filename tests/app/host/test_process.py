# ruff: noqa: ASYNC110, ASYNC220, ASYNC240 - a test may wait on files and processes
from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import host_payloads as say
import pytest

from app.host.process import CallFailedError, ChildDiedError, ChildExit, ChildProcess, HostError
from tests.processes import gone

NewChild = Callable[..., ChildProcess]
PROGRAMS = Path(__file__).parent / "programs"


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


def wrote(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


async def test_start_gives_the_ready_payload_and_the_environment_we_promise(new_child: NewChild) -> None:
    child = new_child()
    assert not child.alive
    ready = await child.start(say.Options("hello"))
    assert ready.greeting == "hello"
    assert ready.pid == child.pid
    assert ready.stdin == ""
    assert dict(ready.environment) == {
        "OMP_WAIT_POLICY": "PASSIVE",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "ANONYMIZED_TELEMETRY": "False",
    }
    assert child.alive
    assert os.getpgid(ready.pid) == ready.pid
    await child.stop()
    assert not child.alive
    assert gone(ready.pid)


async def test_a_failed_start_says_the_childs_sentence_and_leaves_no_child(new_child: NewChild) -> None:
    child = new_child()
    with pytest.raises(CallFailedError, match=r"^No such folder\. Make it\.$"):
        await child.start(say.Options("hello", fail="No such folder. Make it."))
    assert not child.alive
    assert child.pid is None
    await child.start(say.Options("again"))


async def test_a_module_that_is_not_there(new_child: NewChild, log_file: Path) -> None:
    with pytest.raises(ChildDiedError, match=r"^The memory stopped working \(exit code 1\); its log is at "):
        await new_child("no_such_module").start(None)
    assert "no_such_module" in log_file.read_text()


async def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match="cannot be written"):
        await ChildProcess("memory", "host_child", tmp_path / "file" / "memory.log").start(None)


async def test_starting_twice_is_refused(new_child: NewChild) -> None:
    child = new_child()
    await child.start(say.Options("hello"))
    with pytest.raises(HostError, match="runs already"):
        await child.start(say.Options("hello"))
    assert await child.call(say.Echo(1)) == 1


async def test_twenty_megabytes_both_ways_beside_small_calls(new_child: NewChild) -> None:
    child = new_child()
    await child.start(say.Options("hello"))
    big = os.urandom(20 << 20)
    answers = await asyncio.gather(
        child.call(say.Echo(big)),
        *(child.call(say.Echo(n)) for n in range(50)),
        child.call(say.Echo(big[::-1])),
    )
    assert answers[0] == big
    assert answers[1:-1] == list(range(50))
    assert answers[-1] == big[::-1]


async def test_thousands_of_events_from_several_calls_keep_their_order(new_child: NewChild) -> None:
    child = new_child()
    await child.start(say.Options("hello"))

    async def collect() -> list[object]:
        return [item async for item in child.stream(say.Count(5000))]

    for items in await asyncio.gather(*(collect() for _ in range(4))):
        assert items == [*range(5000), "counted"]


async def test_a_call_drops_events_and_returns_the_result(new_child: NewChild) -> None:
    child = new_child()
    await child.start(say.Options("hello"))
    assert await child.call(say.Count(100)) == "counted"


async def test_a_child_that_floods_while_nobody_reads_is_held_back(new_child: NewChild) -> None:
    child = new_child()
    await child.start(say.Options("hello"))
    stream = child.stream(say.Count(200_000))
    assert await anext(stream) == 0
    # Calls both ways still pass while the stream is left alone.
    assert await child.call(say.Echo("through")) == "through"
    await stream.aclose()


async def test_breaking_out_of_a_stream_cancels_it(new_child: NewChild, tmp_path: Path) -> None:
    child = new_child()
    await child.start(say.Options("hello"))
    async for item in child.stream(say.CountUntilCancelled(str(tmp_path / "end"))):
        if item == 5:
            break
    del item
    gc.collect()
    await until(lambda: wrote(tmp_path / "end", "ended"))


async def test_closing_a_stream_cancels_it(new_child: NewChild, tmp_path: Path) -> None:
    child = new_child()
    await child.start(say.Options("hello"))
    stream = child.stream(say.CountUntilCancelled(str(tmp_path / "end")))
    assert await anext(stream) == 0
    await stream.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    await until(lambda: wrote(tmp_path / "end", "ended"))
    assert await child.call(say.Echo("alive")) == "alive"


async def test_cancelling_the_reader_cancels_the_call(new_child: NewChild, tmp_path: Path) -> None:
    child = new_child()
    await child.start(say.Options("hello"))
    seen: list[object] = []

    async def read() -> None:
        async for item in child.stream(say.CountUntilCancelled(str(tmp_path / "end"))):
            seen.append(item)

    task = asyncio.create_task(read())
    await until(lambda: len(seen) > 3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: wrote(tmp_path / "end", "ended"))


async def test_cancelling_a_call_cancels_it_in_the_child(new_child: NewChild, tmp_path: Path) -> None:
    child = new_child()
    await child.start(say.Options("hello"))
    task = asyncio.create_task(child.call(say.CountUntilCancelled(str(tmp_path / "end"))))
    await until(lambda: wrote(tmp_path / "end", "begun"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: wrote(tmp_path / "end", "ended"))


async def test_a_cancelled_stream_ends_without_an_error(new_child: NewChild, tmp_path: Path) -> None:
    child = new_child()
    await child.start(say.Options("hello"))
    stream = child.stream(say.CountUntilCancelled(str(tmp_path / "end")))
    assert await anext(stream) == 0
    stream.cancel()
    rest = [item async for item in stream]
    assert rest == list(range(1, len(rest) + 1))
    assert wrote(tmp_path / "end", "ended")


async def test_long_work_does_not_hold_up_short_calls(new_child: NewChild, tmp_path: Path) -> None:
    child = new_child()
    await child.start(say.Options("hello"))
    streams = [child.stream(say.SlowCount(str(tmp_path / str(n)))) for n in range(8)]
    assert await anext(streams[0]) == 0
    assert await child.call(say.Echo("soon")) == "soon"
    # Those behind the first are dropped before they begin.
    for stream in reversed(streams):
        stream.cancel()
    for stream in streams:
        assert all(isinstance(item, int) for item in [item async for item in stream])
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["0"]


async def test_failures_are_sentences(new_child: NewChild, log_file: Path) -> None:
    child = new_child()
    await child.start(say.Options("hello"))
    with pytest.raises(CallFailedError, match=r"^The file is encrypted\.$") as refused:
        await child.call(say.Refuse("The file is encrypted."))
    assert refused.value.kind == "RefusalError"
    with pytest.raises(CallFailedError, match=r"^Something went wrong in the memory") as broken:
        await child.call(say.Break("secret detail"))
    assert broken.value.kind == "ZeroDivisionError"
    assert str(log_file) in str(broken.value)
    assert "secret detail" not in str(broken.value)
    log = log_file.read_text()
    assert "secret detail" in log
    assert "Traceback" in log
    for payload in (say.Unknown(), say.Unpicklable()):
        with pytest.raises(CallFailedError, match="Something went wrong"):
            await child.call(payload)
    with pytest.raises((TypeError, AttributeError)):
        await child.call(say.Echo(lambda: None))
    assert await child.call(say.Echo("alive")) == "alive"


async def test_what_the_child_prints_goes_to_the_log(
    new_child: NewChild, log_file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    child = new_child()
    await child.start(say.Options("hello"))
    assert await child.call(say.Print("noise " * 1000)) == "printed"
    assert await child.call(say.Echo("fine")) == "fine"
    await child.stop()
    assert log_file.read_text().count("noise") == 3000
    assert "closed well" in log_file.read_text()
    assert capfd.readouterr() == ("", "")
    assert log_file.stat().st_mode & 0o077 == 0


async def test_pushes_arrive_in_order(new_child: NewChild) -> None:
    pushed: list[object] = []
    child = new_child(on_push=pushed.append)
    await child.start(say.Options("hello"))
    for number in range(20):
        await child.call(say.PushBack(number))
    await until(lambda: len(pushed) == 20)
    assert pushed == list(range(20))


@pytest.mark.parametrize(
    ("payload", "how"),
    [
        (say.Crash(signal.SIGSEGV), "signal SIGSEGV"),
        (say.Crash(signal.SIGKILL), "killed, perhaps by the system for lack of memory"),
        (say.Leave(3), "exit code 3"),
        (say.Leave(0), "exit code 0"),
    ],
)
async def test_a_death_fails_every_pending_call(
    new_child: NewChild, log_file: Path, tmp_path: Path, payload: object, how: str
) -> None:
    exits: list[ChildExit] = []
    child = new_child(on_exit=exits.append)
    await child.start(say.Options("hello"))
    stream = child.stream(say.Hang())
    assert await anext(stream) == "hanging"
    sentence = f"The memory stopped working ({how}); its log is at {log_file}."
    waiting = asyncio.create_task(anext(stream))  # type: ignore[arg-type]
    with pytest.raises(ChildDiedError) as died:
        await child.call(payload)
    assert str(died.value) == sentence
    with pytest.raises(ChildDiedError, match="stopped working"):
        await waiting
    await until(lambda: len(exits) == 1)
    assert exits[0].sentence == sentence
    assert not exits[0].asked
    assert not child.alive
    with pytest.raises(ChildDiedError, match="not running"):
        await child.call(say.Echo(1))
    assert (await child.restart()).greeting == "hello"
    assert await child.call(say.Echo("back")) == "back"


async def test_what_was_said_before_a_death_is_not_lost(new_child: NewChild) -> None:
    child = new_child()
    await child.start(say.Options("hello"))
    counted = child.stream(say.Count(20_000))
    with pytest.raises(ChildDiedError):
        await child.call(say.Leave(1))
    received = []
    with contextlib.suppress(ChildDiedError):
        async for item in counted:
            received.append(item)
    assert received[:-1] == list(range(len(received) - 1))


async def test_stop_ends_a_child_that_does_not_listen(new_child: NewChild) -> None:
    exits: list[ChildExit] = []
    child = new_child(on_exit=exits.append)
    ready = await child.start(say.Options("hello"))
    helper = await child.call(say.StartHelper())
    stream = child.stream(say.Hang())
    assert await anext(stream) == "hanging"
    await child.stop(timeout=0)
    with pytest.raises(ChildDiedError, match="was stopped"):
        await anext(stream)
    assert gone(ready.pid)
    await until(lambda: gone(helper))
    await until(lambda: len(exits) == 1)
    assert exits[0].asked
    await child.stop()


async def test_stop_while_it_starts(new_child: NewChild) -> None:
    child = new_child()
    starting = asyncio.create_task(child.start(say.Hang()))
    await until(lambda: child.alive)
    await child.stop(timeout=0)
    with pytest.raises(ChildDiedError):
        await starting
    assert not child.alive


async def test_a_cancelled_start_leaves_no_child(new_child: NewChild) -> None:
    child = new_child()
    starting = asyncio.create_task(child.start(say.Hang()))
    await until(lambda: child.alive)
    pid = child.pid
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert pid is not None
    assert gone(pid)


async def test_ctrl_c_in_the_terminal_does_not_reach_the_child(new_child: NewChild) -> None:
    child = new_child()
    ready = await child.start(say.Options("hello"))
    assert os.getsid(ready.pid) != os.getsid(0)


async def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, str(PROGRAMS / "host_parent.py"), str(tmp_path / "memory.log")],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pid = int(await asyncio.to_thread(parent.stdout.readline))
    assert not gone(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    await until(lambda: gone(pid))


async def test_a_child_ends_when_its_pipe_closes(new_child: NewChild) -> None:
    """Without the kernel's death signal: the end of file alone must do."""
    child = new_child()
    ready = await child.start(say.Options("hello"))
    helper = await child.call(say.StartHelper())
    assert child._pipes is not None
    child._pipes.close()
    await until(lambda: gone(ready.pid) and gone(helper))


async def test_fifty_lives_leak_no_descriptor(new_child: NewChild) -> None:
    children = [new_child("host_loop_child") for _ in range(5)]

    async def live(child: ChildProcess) -> None:
        assert await child.start(say.Options("hello")) == "ready"
        await child.stop()

    await asyncio.gather(*map(live, children))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        await asyncio.gather(*map(live, children))
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_long_log_is_set_aside(new_child: NewChild, log_file: Path) -> None:
    log_file.parent.mkdir(parents=True)
    log_file.write_bytes(b"x" * (5 << 20))
    await new_child().start(say.Options("hello"))
    assert log_file.stat().st_size < 1 << 20
    assert log_file.with_suffix(".log.old").stat().st_size == 5 << 20


async def test_a_listener_that_raises_breaks_nothing(new_child: NewChild) -> None:
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))

    def listener(_: object) -> None:
        raise RuntimeError("listener")

    child = new_child(on_push=listener, on_exit=listener)
    await child.start(say.Options("hello"))
    await child.call(say.PushBack(1))
    assert await child.call(say.Echo("alive")) == "alive"
    await child.stop()
    await until(lambda: len(errors) == 2)


async def test_a_loop_of_its_own_sees_calls_and_cancels(new_child: NewChild) -> None:
    child = new_child("host_loop_child")
    assert await child.start(say.Options("hello")) == "ready"
    long = child.stream(say.Count(10**9))
    short = [item async for item in child.stream(say.Count(3))]
    assert short == [3, 2, 1]
    assert await anext(long) == 10**9
    long.cancel()
    rest = [item async for item in long]
    assert rest[-1] == "stopped early"
