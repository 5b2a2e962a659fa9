"""How each file of a folder ends when the memory reads it: `python -m tests.bench.files FOLDER [--password WORD]`.

One line a file: its ending, seconds, passages, name and what was said; at the end one `name value` a line. The files
are read as the program reads them, in a process apart, and indexed by a memory in a temporary folder. A file that
needs a password is tried with each WORD given, and then counts as indexed.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from app.host.apart import ApartReader
from memory import Memory
from memory.types import (
    DamagedFileError,
    IngestError,
    NeedsPasswordError,
    NoTextError,
    Progress,
    UnsupportedFileError,
)
from tests.models import embedder_folder

LIMIT_SECONDS = 40.0
ENDINGS: dict[type[IngestError], str] = {
    NeedsPasswordError: "needs_password",
    UnsupportedFileError: "unsupported",
    DamagedFileError: "corrupt",
    NoTextError: "no_text",
}
OTHER = "other"
"""No file may end so: an error that says nothing of the kind of end."""


def outcome(memory: Memory, file: Path, passwords: Sequence[str]) -> tuple[str, int, str]:
    """Ending, passages, and what there is to say of it."""
    said = ""
    ending = "needs_password"
    for password in ("", *passwords):
        try:
            report = memory.ingest(file, file.name, str(file), _nothing, lambda: False, password)
        except NeedsPasswordError as error:
            said = str(error)
            continue
        except IngestError as error:
            return ENDINGS.get(type(error), OTHER), 0, str(error)
        return "indexed", report.passages, " ".join(report.warnings)
    return ending, 0, said


def _nothing(progress: Progress) -> None:
    pass


def measure(folder: Path, passwords: Sequence[str]) -> tuple[Counter[str], list[float]]:
    """Endings counted, and the seconds of each file, as they are printed."""
    endings: Counter[str] = Counter()
    times: list[float] = []
    reader = ApartReader()
    with tempfile.TemporaryDirectory() as place:
        memory = Memory.open(Path(place), embedder_folder(), "eng+chi_sim", read=reader)
        memory.wait_until_indexed()
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            began = time.perf_counter()
            ending, passages, said = outcome(memory, file, passwords)
            times.append(time.perf_counter() - began)
            endings[ending] += 1
            print(f"{ending:14} {times[-1]:6.1f} s {passages:5}  {file.relative_to(folder)}  {said}", flush=True)
        reader.close()
        memory.close()
    return endings, times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--password", action="append", default=[])
    arguments = parser.parse_args()
    endings, times = measure(arguments.folder, arguments.password)
    print(f"files {len(times)}")
    for name in ("indexed", *ENDINGS.values(), OTHER):
        print(f"{name} {endings[name]}")
    print(f"slowest_s {max(times, default=0.0):.1f}")
    print(f"over_40s {sum(seconds > LIMIT_SECONDS for seconds in times)}")


if __name__ == "__main__":
    main()
