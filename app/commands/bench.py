"""`aios-chat bench`: how fast this machine is, beside the other programs that it has."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

from app.bench.ours import ROUNDS, Ours, Plan, plan
from app.bench.peer import Peer, PeerError, PeerOptions, Unpacked, find_peers, running
from app.bench.plot import plot
from app.bench.report import LeftOut, Machine, Program, Report, Setting, Turn
from app.bench.table import heading, table
from app.commands.session import Progress, say
from app.events import ModelPhase, ModelState, Part
from app.guard import INTERRUPTED
from app.host.stream import HostError
from app.host.wire import EngineReady
from app.models.fetch import FetchPhase, FetchProgress
from app.models.resolve import resolve
from app.paths import Paths, check_writable, write_atomically
from app.ports import DeskError
from app.settings import Settings
from app.startup import Startup

KERNELS_LATE = "Measured while the CPU's kernels were being compiled, as on a first start: slower than afterwards."


@dataclass(frozen=True, slots=True)
class Bench:
    """What `bench` was given. Files of None go into the data folder."""

    turns: int
    json: Path | None
    svg: Path | None
    quiet: bool


async def bench(settings: Settings, request: Bench) -> int:
    """Measure, print the table, save the figures and the picture. Raises DeskError when our own engine fails; 0 when
    all was measured, 130 when it was interrupted: what was measured until then is shown and saved all the same."""
    paths = Paths.default().create()
    files = _files(request, paths)
    # What is guessed ahead depends on the text, and no peer does it.
    settings = replace(settings, guess_tokens=0)
    run = _Run(settings, request, paths)
    try:
        await run.measure()
    except asyncio.CancelledError:
        run.progress.clear()
        say("interrupted: this is what was measured until then.")
    if run.report is None:
        return INTERRUPTED
    _show(run.report, files)
    return 0 if run.report.complete else INTERRUPTED


def _files(request: Bench, paths: Paths) -> tuple[Path, Path]:
    """Where figures and picture go. Raises PathsError now rather than when all is measured."""
    stem = paths.bench / time.strftime("%Y%m%d-%H%M%S")
    given = (request.json or stem.with_suffix(".json"), request.svg or stem.with_suffix(".svg"))
    files = tuple(file.expanduser().absolute() for file in given)
    for file in files:
        check_writable(file)
    return files[0], files[1]


class _Run:
    """One benchmark. `report` is None until our engine has loaded the model."""

    def __init__(self, settings: Settings, request: Bench, paths: Paths) -> None:
        self._settings, self._request, self._paths = settings, request, paths
        self.progress = Progress(request.quiet)
        self.report: Report | None = None

    async def measure(self) -> None:
        """Ours, then one peer after the other, so that no two of them share the machine."""
        model = await resolve(self._settings.model, self._paths.models, self._fetching)
        self.progress.clear()
        engine, report, texts = await self._ours()
        peers, left_out = find_peers(model, Unpacked(engine.parameters, engine.dtype, engine.free_bytes))
        report.left_out += left_out
        setting = report.setting
        options = PeerOptions(
            str(model),
            setting.threads,
            setting.window_tokens,
            setting.device,
            setting.dtype,
            self._settings.system_text(),
        )
        for peer in peers:
            await self._peer(peer, options, report, texts)
        report.complete = True

    async def _ours(self) -> tuple[EngineReady, Report, Plan]:
        startup = Startup(self._settings, self._paths, self.progress)
        try:
            began = time.perf_counter()
            await startup.start_model()
            state = startup.state(Part.MODEL)
            if state.phase is ModelPhase.FAILED or state.engine is None:
                raise DeskError(state.text)
            program = Program("aios-chat", version("aios-chat"), time.perf_counter() - began)
            report = self._begun(state.engine, program)
            self._say(program, f"ready after {program.load_seconds:.1f} s")
            texts = await self._ask_ours(Ours(startup.host, self._settings.system_text()), program)
            return state.engine, report, texts
        except HostError as error:
            raise DeskError(str(error)) from error
        finally:
            await startup.stop()

    async def _ask_ours(self, ours: Ours, program: Program) -> Plan:
        texts = plan(await ours.tokens_per_sentence(), self._settings.window_tokens, self._request.turns)
        program.speeds = await ours.speeds(texts, partial(self._round, program))
        await ours.chat(texts, partial(self._turn, program))
        return texts

    def _begun(self, engine: EngineReady, program: Program) -> Report:
        s = self._settings
        setting = Setting(
            model=engine.model_name,
            weights=s.weights,
            weights_bytes=engine.weights_bytes,
            device=engine.device,
            dtype=engine.dtype,
            threads=s.threads,
            window_tokens=engine.quota_tokens,
            page_size=s.page_size,
            kv_format=s.kv_format.value,
            policy=s.policy.value,
            turns=self._request.turns,
        )
        now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        note = KERNELS_LATE if engine.kernels_late else ""
        if note:
            say(note)
        self.report = Report(program.version, now, Machine.here(), setting, [program], note=note)
        return self.report

    async def _peer(self, peer: Peer, options: PeerOptions, report: Report, texts: Plan) -> None:
        """A peer that fails is left out from there on, and the benchmark goes on."""
        self._note(f"{peer.name}: loading the model")
        tokens = [turn.chat_tokens for turn in report.programs[0].turns]
        try:
            async with running(peer, options, self._paths.logs / f"bench-{peer.name}.log") as (process, program):
                report.programs.append(program)
                self._say(program, f"ready after {program.load_seconds:.1f} s")
                program.speeds = await process.speeds(texts, partial(self._round, program))
                exchanges = list(zip(texts.turns, tokens, strict=True))
                await process.chat(exchanges, partial(self._turn, program))
        except PeerError as error:
            report.left_out.append(LeftOut(peer.name, str(error)))

    def _turn(self, program: Program, turn: Turn) -> None:
        program.turns.append(turn)
        each = "" if turn.token_seconds is None else f", {1000 * turn.token_seconds:.1f} ms a token"
        self._say(
            program,
            f"turn {turn.number} of {self._request.turns}, a chat of {turn.chat_tokens:,} tokens: first token after "
            f"{1000 * turn.first_token_seconds:,.0f} ms{each}",
        )

    def _round(self, program: Program, number: int) -> None:
        self._say(program, f"reading and answering in new chats, round {number} of {ROUNDS}")

    def _say(self, program: Program, text: str) -> None:
        self._note(f"{program.name}: {text}")

    def _note(self, text: str) -> None:
        self.progress.clear()
        if not self._request.quiet:
            print(text, file=sys.stderr, flush=True)

    def _fetching(self, progress: FetchProgress) -> None:
        if progress.phase is not FetchPhase.READY:
            text = f"{progress.phase.value} {progress.entry.title}"
            self.progress(ModelState(Part.MODEL, ModelPhase.FETCHING, text, progress.done, progress.total))


def _show(report: Report, files: tuple[Path, Path]) -> None:
    print(f"\n{heading(report)}\n\n{table(report)}\n")
    for left in report.left_out:
        print(f"{left.name} was left out: {left.why}.")
    for file, data in zip(
        files, (json.dumps(report.as_dict(), ensure_ascii=False, indent=2), plot(report)), strict=True
    ):
        write_atomically(file, data)
        print(f"saved {file}")
