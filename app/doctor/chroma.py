"""Are the memory's libraries installed, in versions that it was made for?"""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata

from app.doctor.check import Check, Status

LIBRARIES = ("chromadb", "sentence-transformers", "transformers", "PyMuPDF")


def check(version_of: Callable[[str], str] = metadata.version) -> Check:
    """Read the installed versions from their metadata; importing them would take seconds."""
    try:
        needed = metadata.requires("aios-chat") or []
    except metadata.PackageNotFoundError:
        needed = []
    versions: list[str] = []
    missing: list[str] = []
    for library in LIBRARIES:
        try:
            versions.append(f"{library} {version_of(library)}")
        except metadata.PackageNotFoundError:
            missing.append(library)
    wrong = missing + _outside(needed, version_of)
    if wrong:
        fix = f"Reinstall aios-chat, or only: `python -m pip install {' '.join(repr(one) for one in wrong)}`."
        detail = "; ".join(filter(None, [", ".join(versions), f"missing or of another version: {', '.join(wrong)}"]))
        return Check("Chroma", Status.FAILURE, detail, fix)
    return Check("Chroma", Status.OK, ", ".join(versions))


def _outside(requirements: list[str], version_of: Callable[[str], str]) -> list[str]:
    """The requirements on our libraries that the installed versions do not meet."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    ours = {canonicalize_name(library) for library in LIBRARIES}
    outside: list[str] = []
    for requirement in map(Requirement, requirements):
        if canonicalize_name(requirement.name) not in ours:
            continue
        try:
            version = version_of(requirement.name)
        except metadata.PackageNotFoundError:
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            outside.append(f"{requirement.name}{requirement.specifier}")
    return outside
