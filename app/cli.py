"""The commands of `aios-chat`. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from typer._click.exceptions import ClickException  # typer carries its own copy of click and exports only a part

from app.cli_base import base
from app.cli_memory import kind_of, memory
from app.cli_options import Json, Kind, Limit, MisuseError, Quiet, settings_of
from app.guard import INTERRUPTED, MISUSED, complain, guarded
from app.policy import EXPLAINED
from app.settings import load_settings, overridden

cli = typer.Typer(
    name="aios-chat",
    help="Chat with a model on this machine. Chats never have to end: what leaves the window is recalled from disk.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=True,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

cli.add_typer(memory, name="memory")
cli.add_typer(base, name="base")


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"aios-chat {version('aios-chat')}")
        raise typer.Exit


@cli.callback(invoke_without_command=True)
def main_options(
    context: typer.Context,
    model: Annotated[str | None, typer.Option(help="starter, a .gguf file, a model folder or a hub id.")] = None,
    weights: Annotated[str | None, typer.Option(help="auto, full, int8 or int4: how the weights are held.")] = None,
    window: Annotated[int | None, typer.Option(help="The quota of a chat's window, in tokens.")] = None,
    kv_format: Annotated[
        str | None, typer.Option(help="How full pages are kept: auto, full, int8, k8v4, int4 or tq3.")
    ] = None,
    policy: Annotated[str | None, typer.Option(help=EXPLAINED)] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda.")] = None,
    threads: Annotated[int | None, typer.Option(help="Processor threads for the model.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 always takes the likeliest word.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same answer.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="The longest answer, in tokens.")] = None,
    system: Annotated[str | None, typer.Option(help="The system prompt.")] = None,
    recall: Annotated[str | None, typer.Option(help="on or off.")] = None,
    chat: Annotated[str | None, typer.Option(help="Open this chat on the screen (id or title).")] = None,
    _shown: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Without a command: the chat screen."""
    from app.paths import Paths

    overrides: dict[str, object] = {
        "model": model,
        "weights": weights,
        "window_tokens": window,
        "kv_format": kv_format,
        "policy": policy,
        "device": device,
        "threads": threads,
        "temperature": temperature,
        "seed": seed,
        "max_tokens": max_tokens,
        "system_prompt": system,
        "recall": recall,
    }
    context.obj = load_settings(Paths.default().config_file, overrides)
    if context.invoked_subcommand is None:
        from app.commands.screen import screen

        raise typer.Exit(screen(context.obj, chat))


@cli.command()
def ask(
    context: typer.Context,
    question: Annotated[str, typer.Argument(help="The question; text on stdin is added to it.")] = "",
    chat: Annotated[str | None, typer.Option(help="Go on with this chat (id or title).")] = None,
    file: Annotated[list[Path] | None, typer.Option(help="Attach a file; may be repeated.")] = None,
    in_base: Annotated[
        list[str] | None, typer.Option("--base", help="Search this base and the chats only; may be repeated; all.")
    ] = None,
    web: Annotated[bool, typer.Option("--web", help="Search the web for it (see the setting web_search).")] = False,
    json_schema: Annotated[Path | None, typer.Option(help="The answer is JSON by the schema in this file.")] = None,
    regex: Annotated[str | None, typer.Option(help="The whole answer matches this pattern.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="End the answer before this text; may be repeated.")] = None,
    ban: Annotated[list[str] | None, typer.Option(help="Never say this text; may be repeated.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Choose among the k likeliest tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Choose among the likeliest of this probability.")] = None,
    min_p: Annotated[float | None, typer.Option(help="Drop tokens less likely than this share of the best.")] = None,
    repeat_penalty: Annotated[float | None, typer.Option(help="Above 1: repeat less.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Ask one question; the answer goes to stdout."""
    from app.commands.ask import Ask, constrained
    from app.commands.ask import ask as work
    from app.commands.session import run

    piped = "" if sys.stdin.isatty() else sys.stdin.read().strip()
    if not question.strip() and not piped:
        raise MisuseError('There is no question; write it after "ask" or pipe it in.')
    overrides = {
        "stop": stop,
        "banned": ban,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition_penalty": repeat_penalty,
    }
    settings = constrained(overridden(settings_of(context), overrides), json_schema, regex)
    request = Ask(question, piped, chat, tuple(file or ()), as_json, quiet, tuple(in_base or ()), web)
    raise typer.Exit(run(lambda: work(settings, request)))


@cli.command()
def ingest(
    context: typer.Context,
    sources: Annotated[list[str], typer.Argument(help="Files, folders of files, or web addresses.")],
    password: Annotated[str, typer.Option(help="Opens encrypted files; asked for on a terminal.")] = "",
    watch: Annotated[bool, typer.Option("--watch", help="Go on reading what changes in the folders.")] = False,
    forget_gone: Annotated[
        bool, typer.Option("--forget-gone", help="Forget files of the folders that are gone from the disk.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Read files, folders and web pages into the memory."""
    from app.commands.ingest import Ingest
    from app.commands.ingest import ingest as work
    from app.commands.session import run

    request = Ingest(tuple(sources), password, watch, forget_gone, as_json, quiet)
    raise typer.Exit(run(lambda: work(settings_of(context), request)))


@memory.command()
@cli.command()
def search(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help="What to look for.")],
    kind: Kind = None,
    limit: Limit = 10,
    as_json: Json = False,
) -> None:
    """Search all chats and files."""
    from app.commands.memory import search as work
    from app.commands.session import run

    wanted = kind_of(kind)
    raise typer.Exit(run(lambda: work(settings_of(context), query, kind=wanted, limit=limit, json=as_json)))


@cli.command()
def chats(context: typer.Context, as_json: Json = False) -> None:
    """List the chats."""
    from app.commands.chats import chats as work
    from app.commands.session import run

    raise typer.Exit(run(lambda: work(settings_of(context), json=as_json)))


@cli.command()
def favorites(context: typer.Context, as_json: Json = False) -> None:
    """List the starred messages."""
    from app.commands.chats import favorites as work
    from app.commands.session import run

    raise typer.Exit(run(lambda: work(settings_of(context), json=as_json)))


@cli.command()
def pinned(
    context: typer.Context,
    chat: Annotated[str, typer.Argument(help="The chat's id, its beginning, or its title.")],
    as_json: Json = False,
) -> None:
    """List the messages that are pinned to a chat's window."""
    from app.commands.chats import pinned as work
    from app.commands.session import run

    raise typer.Exit(run(lambda: work(settings_of(context), chat, json=as_json)))


@cli.command()
def export(
    context: typer.Context,
    chat: Annotated[str, typer.Argument(help="The chat's id, its beginning, or its title.")],
    as_json: Json = False,
) -> None:
    """Print a chat as Markdown (or JSON)."""
    from app.commands.chats import export as work
    from app.commands.session import run

    raise typer.Exit(run(lambda: work(settings_of(context), chat, json=as_json)))


@cli.command()
def bench(
    context: typer.Context,
    turns: Annotated[
        int, typer.Option(min=2, max=1000, help="Turns of the growing chat; each is a quarter of the window.")
    ] = 10,
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Draw the growing chat into this file.")] = None,
    quiet: Quiet = False,
) -> None:
    """Measure this machine, and the other programs that it has."""
    from app.commands.bench import Bench
    from app.commands.bench import bench as work
    from app.commands.session import run

    if json is not None and svg is not None and json.expanduser().absolute() == svg.expanduser().absolute():
        raise MisuseError(f"--json and --svg both name {json}: give them two files.")
    raise typer.Exit(run(lambda: work(settings_of(context), Bench(turns, json, svg, quiet))))


@cli.command()
def doctor(context: typer.Context, as_json: Json = False) -> None:
    """Check this machine and say what to mend."""
    from app.commands.machine import doctor as work

    raise typer.Exit(work(settings_of(context), json=as_json))


@cli.command()
def models(context: typer.Context, as_json: Json = False) -> None:
    """List models and what they cost."""
    from app.commands.machine import models as work

    raise typer.Exit(work(settings_of(context), json=as_json))


def main() -> NoReturn:
    """Run the command line and exit."""
    sys.exit(guarded(_run))


def _run() -> object:
    try:
        return typer.main.get_command(cli).main(standalone_mode=False, prog_name="aios-chat")
    except ClickException as error:
        return complain(f"{error.format_message().rstrip('.')}. See aios-chat --help.", MISUSED)
    except typer.Abort:
        return INTERRUPTED


if __name__ == "__main__":
    main()
