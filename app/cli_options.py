"""What the commands of `aios-chat` share: their common options, and the settings that were made before them."""

from __future__ import annotations

from typing import Annotated

import typer

from app.errors import PersonError
from app.guard import MISUSED
from app.settings import Settings

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only.")]
Kind = Annotated[str | None, typer.Option(help="chat, document or web.")]
Limit = Annotated[int, typer.Option(min=1, max=100, help="How many passages.")]


class MisuseError(PersonError):
    """What was typed makes no sense: one sentence with what to type instead."""

    exit_code = MISUSED


def settings_of(context: typer.Context) -> Settings:
    """The settings in force."""
    settings = context.find_root().obj
    assert isinstance(settings, Settings)
    return settings
