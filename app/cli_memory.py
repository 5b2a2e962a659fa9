"""The commands of `aios-chat memory`: what the memory holds, and what can be done about it."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli_options import Json, Kind, MisuseError, Quiet, settings_of
from app.host.wire import SourceKind

memory = typer.Typer(help="See what the memory holds, why it chose what it chose, and have it forget.")


def kind_of(given: str | None) -> SourceKind | None:
    """The kind of source that an option names. Raises MisuseError."""
    if given is not None and given not in list(SourceKind):
        raise MisuseError(f"--kind is {given!r}; it must be {' or '.join(SourceKind)}.")
    return None if given is None else SourceKind(given)


@memory.command(name="list")
def list_(context: typer.Context, kind: Kind = None, as_json: Json = False) -> None:
    """List the chats and files that the memory holds."""
    from app.commands.inventory import list_sources as work
    from app.commands.session import run

    wanted = kind_of(kind)
    raise typer.Exit(run(lambda: work(settings_of(context), kind=wanted, json=as_json)))


@memory.command()
def why(
    context: typer.Context,
    question: Annotated[str, typer.Argument(help="A question as you would ask it in a chat.")],
    chat: Annotated[str | None, typer.Option(help="As if asked in this chat (id or title), its window empty.")] = None,
    as_json: Json = False,
) -> None:
    """Show what would be recalled for a question, and why. No model is asked."""
    from app.commands.inventory import why as work
    from app.commands.session import run

    if not question.strip():
        raise MisuseError('There is no question; write it after "why".')
    raise typer.Exit(run(lambda: work(settings_of(context), question, chat, json=as_json)))


@memory.command()
def forget(
    context: typer.Context,
    what: Annotated[
        str, typer.Argument(help="A file's name or path, a chat's title, or an id of either or a message.")
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")] = False,
) -> None:
    """Forget a file, a chat or one message: its words are nowhere on the disk afterwards."""
    from app.commands.forget import forget as work
    from app.commands.session import run

    raise typer.Exit(run(lambda: work(settings_of(context), what, yes=yes)))


@memory.command()
def digest(context: typer.Context, as_json: Json = False, quiet: Quiet = False) -> None:
    """Have the model sum up now what it would sum up in the background."""
    from app.commands.inventory import digest as work
    from app.commands.session import run

    raise typer.Exit(run(lambda: work(settings_of(context), json=as_json, quiet=quiet)))


@memory.command()
def rebuild(context: typer.Context, quiet: Quiet = False) -> None:
    """Make the indexes anew from the stored text."""
    from app.commands.inventory import rebuild as work
    from app.commands.session import run

    raise typer.Exit(run(lambda: work(settings_of(context), quiet=quiet)))


@memory.command()
def export(context: typer.Context, kind: Kind = None, as_json: Json = False) -> None:
    """Print every passage with its source and place, as Markdown (with --json: one JSON object a line)."""
    from app.commands.inventory import export as work
    from app.commands.session import run

    wanted = kind_of(kind)
    raise typer.Exit(run(lambda: work(settings_of(context), kind=wanted, json=as_json)))


@memory.command()
def stats(context: typer.Context, as_json: Json = False) -> None:
    """Say how much the memory holds, and what it takes on the disk."""
    from app.commands.inventory import stats as work
    from app.commands.session import run

    raise typer.Exit(run(lambda: work(settings_of(context), json=as_json)))
