"""What Python adds to a token: the time of a step without the compiled layers and head.

That is the plan of the step, rotations, torch's calls, sampling, detokenising, the loop finder and the events. It is
counted in the processor time of the engine's thread, which all of it runs on, so that another program's turn on the
core is no part of it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

from engine.engine import Engine
from engine.sampling.params import SamplingParams
from engine.types import MessageKey
from kernels.cpu.team import Job, Team
from tests.bench.cpu.ours import engine_of, open_chat
from tests.bench.cpu.setting import Figures, text_of
from tests.bench.report import median

SENTENCES, NEW = 36, 100
DEFAULTS = SamplingParams(temperature=0.2, top_k=40, top_p=0.95, max_tokens=NEW, end_loops=True)
"""What the program asks for unless a person says otherwise."""


def measure(file: Path) -> Figures:
    """python_ms_per_token, greedy; the same with the program's own sampling; and the compiled calls' times."""
    engine = engine_of(file, quota=2048)
    greedy = SamplingParams(temperature=0, max_tokens=NEW, end_loops=False)
    figures: Figures = {}
    for name, params in (("python_ms_per_token", greedy), ("python_sampled_ms_per_token", DEFAULTS)):
        steps, jobs = _steps(engine, name, params)
        in_jobs = [sum(taken) for taken in zip(*jobs.values(), strict=True)]
        figures[name] = 1000 * median([step - job for step, job in zip(steps, in_jobs, strict=True)])
        shown = ", ".join(f"{job} {1000 * median(taken):.2f}" for job, taken in jobs.items())
        print(f"{name}: a step takes {1000 * median(steps):.2f} ms, of it {shown}", flush=True)
    return figures


def _steps(engine: Engine, name: str, params: SamplingParams) -> tuple[list[float], dict[str, list[float]]]:
    """Seconds of each step behind about 1,000 tokens, and of each compiled call in it, by its name."""
    session = open_chat(engine)
    engine.add_user(session, MessageKey("q"), text_of(len(name), SENTENCES))
    engine.generate(session, MessageKey("a"), params)
    run, spent, steps = Team.run, defaultdict(list), []

    def timed(team: Team, job: Job, phases: int, *args: Any) -> None:
        began = time.thread_time()
        run(team, job, phases, *args)
        spent[job.__name__.strip("_")].append(time.thread_time() - began)

    while engine.unread(session) > 1:
        engine.step()
    with patch.object(Team, "run", timed):
        while engine.busy:
            began = time.thread_time()
            engine.step()
            steps.append(time.thread_time() - began)
    engine.close_session(session)
    return steps, spent
