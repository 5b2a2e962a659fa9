"""Runs every check, quick ones first, so that lines appear while torch is still being asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from app.doctor import chroma, disk, gpu_memory, models, network, python, sqlite, terminal, tesseract, torch_cuda
from app.doctor import triton as triton_check
from app.doctor.check import Check, Status
from app.doctor.probe import probe

if TYPE_CHECKING:
    from app.paths import Paths


def run_checks(paths: Paths, ocr_languages: str = "eng", web_search: str = "off") -> Iterator[Check]:
    """Every check of this machine, one after the other as they are asked for. Blocks; never raises."""
    steps: list[tuple[str, Callable[[], Iterable[Check]]]] = [
        ("Python", lambda: [python.check()]),
        ("Terminal", lambda: [terminal.check(terminal.Terminal.here())]),
        ("Data folder", lambda: [disk.check(paths.data)]),
        ("SQLite", lambda: [sqlite.check()]),
        ("Chroma", lambda: [chroma.check()]),
        ("Tesseract", lambda: [tesseract.check(ocr_languages)]),
        ("Models", partial(models.checks, paths.models)),
        ("Network", lambda: [network.check(web_search=web_search)]),
        ("PyTorch", lambda: [torch_cuda.check(probe())]),
        ("Triton", lambda: [triton_check.check(probe())]),
        ("GPU memory", lambda: [gpu_memory.check(probe())]),
    ]
    for name, step in steps:
        try:
            yield from step()
        except Exception as error:
            # The doctor is for broken machines: one check that breaks must not hide the others.
            detail = f"the check itself failed ({type(error).__name__}: {error})"
            yield Check(name, Status.FAILURE, detail, "Please report this line.")


def exit_code(checks: Iterable[Check]) -> int:
    """1 when any check is a failure, else 0: warnings do not fail a script."""
    return 1 if any(check.status is Status.FAILURE for check in checks) else 0
