"""The commands of `aios-chat base`: knowledge bases, named collections of folders and files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli_options import Json, Quiet, settings_of

base = typer.Typer(help="Knowledge bases: named collections of folders and files that a chat can be held to.")

Name = Annotated[str, typer.Argument(help="The name of the base: letters, digits, - and _.")]


@base.command()
def add(
    context: typer.Context,
    name: Name,
    paths: Annotated[list[Path], typer.Argument(help="Files, or folders of files.")],
    quiet: Quiet = False,
) -> None:
    """Put folders and files into a base, and read them."""
    from app.commands.bases import add as work
    from app.commands.session import run

    raise typer.Exit(run(lambda: work(settings_of(context), name, tuple(paths), quiet=quiet)))


@base.command(name="list")
def list_(context: typer.Context, as_json: Json = False) -> None:
    """List the bases with their folders and files."""
    from app.commands.bases import list_bases as work
    from app.commands.session import run

    raise typer.Exit(run(lambda: work(settings_of(context), json=as_json)))


@base.command()
def remove(context: typer.Context, name: Name) -> None:
    """Dissolve a base; what was read from it stays in the memory."""
    from app.commands.bases import remove as work
    from app.commands.session import run

    raise typer.Exit(run(lambda: work(settings_of(context), name)))
