"""Are the shipped models here, and are their files the published ones, to the last byte?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from app.doctor.check import Check, Status
from app.models.manifest import ModelEntry, entries
from app.models.verify import Presence, presence, verify

FIX = "Start aios-chat (or any of its commands that needs it): it is fetched then, about {} MB."


def checks(models_folder: Path) -> Iterator[Check]:
    """One check a shipped model; hashes every byte of those that are here."""
    for entry in entries():
        yield check(entry, models_folder)


def check(entry: ModelEntry, models_folder: Path) -> Check:
    """Look for one model's files and hash them."""
    name = f"Model {entry.name}"
    fix = FIX.format(round(entry.wheel.bytes / 1e6))
    home = entry.home(models_folder)
    if presence(entry, models_folder) is Presence.ABSENT and not home.exists():
        return Check(name, Status.WARNING, f"{entry.title} has not been fetched yet", fix)
    try:
        wrong = verify(entry, models_folder)
    except OSError as error:
        return Check(name, Status.FAILURE, f"{home} cannot be read: {error.strerror}", "Check its permissions.")
    if wrong is not None:
        return Check(name, Status.FAILURE, f"{entry.title}: {wrong}", fix)
    return Check(name, Status.OK, f"{entry.title}, {round(entry.bytes / 1e6)} MB, every file's sha256 is right")
