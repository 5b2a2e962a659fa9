"""Source code by definition: functions, methods and classes are passages of their own that know where they stand.

The grammars are packages of compiled parsers; nothing is fetched. A language without one is cut at blank lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING

from memory.chunking import Section
from memory.ingest.clean import clean
from memory.ingest.extract import Extract, Format, Job
from memory.ingest.text import read_as

if TYPE_CHECKING:
    from tree_sitter import Node

_GRAMMARS = {
    "tree_sitter_python.language": ".py .pyi",
    "tree_sitter_javascript.language": ".js .mjs .cjs .jsx",
    "tree_sitter_typescript.language_typescript": ".ts .mts .cts",
    "tree_sitter_typescript.language_tsx": ".tsx",
    "tree_sitter_c.language": ".c .h",
    "tree_sitter_cpp.language": ".cc .cpp .cxx .hh .hpp .hxx .cu .cuh",
    "tree_sitter_java.language": ".java",
    "tree_sitter_go.language": ".go",
    "tree_sitter_rust.language": ".rs",
    "tree_sitter_ruby.language": ".rb",
    "tree_sitter_bash.language": ".sh .bash",
    "tree_sitter_c_sharp.language": ".cs",
    "tree_sitter_php.language_php": ".php",
}
_BY_SUFFIX = {suffix: grammar for grammar, suffixes in _GRAMMARS.items() for suffix in suffixes.split()}
_DEFINITIONS = (
    "function_definition function_declaration function_item method_definition method_declaration method "
    "constructor_declaration singleton_method class_definition class_declaration class_specifier class "
    "interface_declaration enum_declaration enum_item enum_specifier struct_item struct_specifier "
    "struct_declaration trait_item trait_declaration impl_item mod_item module namespace_definition "
    "namespace_declaration type_declaration type_alias_declaration record_declaration macro_definition "
    "generator_function_declaration abstract_class_declaration internal_module property_declaration"
)
_DEFINES = frozenset(_DEFINITIONS.split())
_WRAPS = frozenset({"decorated_definition", "export_statement", "template_declaration", "ambient_declaration"})
_CARRIES = frozenset(
    {"lexical_declaration", "variable_declaration", "preproc_ifdef", "preproc_if", "linkage_specification"}
)
_SMALL = 1200
"""Bytes up to which a class stays whole: about what one passage holds twice."""
_DEEPEST = 4
_MOST_BYTES = 4 * 2**20


def read(job: Job) -> Extract:
    """A source file, a configuration file or a table of values."""
    extract = read_as(job, Format.CODE)
    grammar = _BY_SUFFIX.get(PurePath(job.name).suffix.lower())
    text = clean(extract.sections[0].text)
    if grammar is None or len(text) > _MOST_BYTES:
        return extract
    return replace(extract, sections=tuple(_definitions(text, grammar)))


def _definitions(text: str, grammar: str) -> Iterator[Section]:
    from tree_sitter import Language, Parser

    module, function = grammar.split(".")
    source = text.encode("utf-8")
    tree = Parser(Language(getattr(import_module(module), function)())).parse(source)
    place = _Place(source)
    for first, after, heading in _cuts(tree.root_node, 0, len(source), "", 0):
        piece = source[first:after].decode("utf-8")
        if piece.strip():
            yield Section(piece, line=place.line(first), heading=heading, start=place.character(first))


class _Place:
    """Turns offsets in bytes, asked for in rising order, into lines and characters."""

    def __init__(self, source: bytes) -> None:
        self._source, self._at, self._line, self._character = source, 0, 1, 0

    def _move(self, to: int) -> None:
        passed = self._source[self._at : to].decode("utf-8")
        self._line += passed.count("\n")
        self._character += len(passed)
        self._at = to

    def line(self, offset: int) -> int:
        self._move(offset)
        return self._line

    def character(self, offset: int) -> int:
        self._move(offset)
        return self._character


def _cuts(parent: Node, first: int, after: int, above: str, depth: int) -> Iterator[tuple[int, int, str]]:
    """Cuts of [first, after): each definition with the comments before it, and what stands between definitions."""
    begin = first
    for child in parent.children:
        node = _definition(child)
        if node is None or child.start_byte < begin:
            continue
        begins = _with_comments(child, begin)
        yield begin, begins, above
        name = _name(node)
        heading = " › ".join(part for part in (above, name) if part)
        body = node.child_by_field_name("body")
        if (
            body is not None
            and child.end_byte - begins > _SMALL
            and depth < _DEEPEST
            and any(_definition(inner) is not None for inner in body.children)
        ):
            yield from _cuts(body, begins, child.end_byte, heading, depth + 1)
        else:
            yield begins, child.end_byte, heading
        begin = child.end_byte
    yield begin, after, above


def _definition(node: Node) -> Node | None:
    """The definition that a node is or wraps: a decorator, an export and a template belong to it."""
    if node.type in _DEFINES:
        return node
    if node.type in _WRAPS:
        return next((found for child in node.children if (found := _definition(child)) is not None), None)
    if node.type in _CARRIES:  # const f = () => …
        for child in node.children:
            value = child.child_by_field_name("value")
            if value is not None and value.type in ("arrow_function", "function_expression", "class"):
                return child
    return None


def _with_comments(node: Node, limit: int) -> int:
    """Where the comments right above a definition begin."""
    begins, row, before = node.start_byte, node.start_point[0], node.prev_sibling
    while (
        before is not None
        and ("comment" in before.type or before.type in ("attribute_item", "attribute_list"))
        and before.end_point[0] >= row - 1
        and before.start_byte >= limit
    ):
        begins, row, before = before.start_byte, before.start_point[0], before.prev_sibling
    return begins


def _name(node: Node) -> str:
    found = node.child_by_field_name("name")
    inner = node.child_by_field_name("declarator")
    while found is None and inner is not None:  # C: the name stands inside declarators
        deeper = inner.child_by_field_name("declarator")
        found, inner = (inner, None) if deeper is None else (None, deeper)
    if found is None:  # Rust: impl blocks are called after their type
        found = node.child_by_field_name("type")
    text = b"" if found is None else found.text or b""
    return " ".join(text.decode("utf-8", "replace").split())[:80]
