"""`python -m kernels.compile`: build every kernel for every GPU family the project serves; no GPU is needed.

Prints one line a kernel and target: registers a thread, bytes spilled, shared memory. Exits 1 when a kernel does not
compile, spills a register, or needs more shared memory than that GPU gives a program; 2 when there is no compiler.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from kernels import (
    flash,
    gated,
    low_bit_linear,
    low_bit_rows,
    page_quantise,
    paged_attention,
    paged_attention_packed,
    paged_prefill,
    rms_norm,
    rope_store,
    sample,
)
from kernels.runtime import INTERPRETED, MISSING, CompileCase

SHARED_KB = {80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}
"""Compute capability -> KB of shared memory a program may have (CUDA C++ Programming Guide, technical specifications):
A100; RTX 30; RTX 40; H100 and H200; B200; RTX 50."""


@dataclass(frozen=True, slots=True)
class Report:
    """What the compiler made of one case for one target; `error` is empty when it compiled."""

    target: int
    name: str
    registers: int = 0
    spilled: int = 0
    shared: int = 0
    error: str = ""

    @property
    def bad(self) -> str:
        """Why this is a failure, or nothing."""
        if self.error:
            return self.error
        if self.spilled:
            return f"spills {self.spilled} bytes"
        if self.shared > SHARED_KB[self.target] * 1024:
            return f"shared memory over {SHARED_KB[self.target]} KB"
        return ""


def cases() -> Iterator[CompileCase]:
    """Every specialisation of every kernel; a new kernel file adds its `compile_cases` here."""
    for kernels_of in (
        paged_attention, paged_attention_packed, flash, paged_prefill, page_quantise, rms_norm, rope_store, gated,
        low_bit_linear, low_bit_rows, sample,
    ):  # fmt: skip
        yield from kernels_of.compile_cases()


def build(case: CompileCase, target: int) -> Report:
    """Compile one case down to machine code and read what the assembler says of it."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler.errors import CompilationError

    try:
        compiled = triton.compile(
            ASTSource(case.kernel, *_source(case)),
            target=GPUTarget("cuda", target, 32),
            options={"num_warps": case.num_warps, "num_stages": case.num_stages},
        )
        log = _assemble(compiled.asm["ptx"], target)
    except (CompilationError, RuntimeError, subprocess.CalledProcessError) as error:
        return Report(target, case.name, error=f"{type(error).__name__}: {error}")
    registers = re.search(r"Used (\d+) registers", log)
    spills = re.findall(r"(\d+) bytes spill (?:stores|loads)", log)
    if registers is None or not spills:
        return Report(target, case.name, error="ptxas -v reports neither registers nor spills")
    return Report(target, case.name, int(registers[1]), sum(map(int, spills)), compiled.metadata.shared)


def _source(case: CompileCase) -> tuple[dict[str, object], dict[str, object], dict[tuple[int, ...], object]]:
    """Triton's signature, constants and alignment attributes of a case."""
    aligned = [["tt.divisibility", 16]]
    signature: dict[str, object] = {}
    attributes: dict[tuple[int, ...], object] = {}
    for index, (name, kind) in enumerate(case.signature.items()):
        parts = kind if isinstance(kind, tuple) else (kind,)
        paths = [(index, part) for part in range(len(parts))] if isinstance(kind, tuple) else [(index,)]
        attributes.update({path: aligned for path, part in zip(paths, parts, strict=True) if part.endswith(":16")})
        types = tuple(part.removesuffix(":16") for part in parts)
        signature[name] = types if isinstance(kind, tuple) else types[0]
    signature.update(dict.fromkeys(case.constants, "constexpr"))
    return signature, dict(case.constants), attributes


def _assemble(ptx: str, target: int) -> str:
    """The log of `ptxas -v`, run as Triton runs it; Triton throws its own log away."""
    from triton.backends.nvidia.compiler import get_ptxas, sm_arch_from_capability

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(ptx)
        command = [
            get_ptxas(target).path,
            "-v",
            "--regAllocOptLevel=2",
            f"--gpu-name={sm_arch_from_capability(target)}",
        ]
        command += [str(source), "-o", str(source.with_suffix(".cubin"))]
        return subprocess.run(command, check=True, capture_output=True, text=True).stderr


def _build_nth(index: int, target: int) -> Report:
    """Build by number: a decorated kernel cannot be sent to another process."""
    return build(list(cases())[index], target)


def main() -> int:
    """Build everything on all cores, print the table, and return the exit status."""
    if MISSING or INTERPRETED:
        print(f"no compiler: {MISSING or 'TRITON_INTERPRET=1 is set, unset it'}", file=sys.stderr)
        return 2
    names = [case.name for case in cases()]
    jobs = [(index, target) for index in range(len(names)) for target in SHARED_KB]
    width = max(map(len, names))
    bad = 0
    print(f"{'kernel':{width}}  target  registers  spilled  shared")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as workers:
        for report in workers.map(_build_nth, *zip(*jobs, strict=True)):
            line = (
                f"{report.name:{width}}  sm_{report.target:<5}{report.registers:8}{report.spilled:9}{report.shared:8}"
            )
            print(f"{line}  {report.bad}".rstrip(), flush=True)
            bad += bool(report.bad)
    print(f"{len(jobs) - bad} of {len(jobs)} built without a spill")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
