"""The house's own measures (design.md, section 1)."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("app", "engine", "kernels", "memory")
LONGEST_MODULE, LONGEST_FUNCTION = 400, 60


def modules() -> list[Path]:
    return [file for room in ROOMS for file in (ROOT / room).rglob("*.py")]


def test_a_module_is_one_idea() -> None:
    lines = {str(file.relative_to(ROOT)): len(file.read_text().splitlines()) for file in modules()}
    assert not {name: count for name, count in lines.items() if count > LONGEST_MODULE}


def test_a_function_is_one_idea() -> None:
    long = {}
    for file in modules():
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > LONGEST_FUNCTION:
                    long[f"{file.relative_to(ROOT)}:{node.name}"] = length
    assert not long
