"""Every option, declared once: name, type, default, help, bounds.

From this come the settings file, the environment variables, the command line's checks and the documentation.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast

from app.errors import PersonError
from app.host.sampling import Constraint, Sampling
from app.models.kv_format import KvFormat
from app.option_kinds import (
    KV_FORMAT,
    POLICY,
    SWITCH,
    TEXT,
    TEXTS,
    WEB_SEARCH,
    Kind,
    Switch,
    matching,
    number,
    one_of,
    whole,
)
from app.policy import EXPLAINED, Policy

ENV_PREFIX = "AIOS_CHAT_"
NOT_OPTIONS = frozenset({"AIOS_CHAT_HOME"})
"""Variables with our prefix that are no option (see app.paths)."""
SMALLEST_WINDOW_PAGES = 4
"""Sinks, the page being written and two more to look back on: below this a window shows the model nothing."""


class SettingsError(PersonError):
    """One sentence for the person: the option, the value that was given, and what is allowed."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Option:
    """One declared option."""

    name: str
    help: str
    allowed: str
    default: str
    """The default in words."""
    env: str
    read: Callable[[object], object]


def _option(default: object, kind: Kind, help: str, *, shown: str = "") -> Any:  # noqa: A002
    """A dataclass field that is an option. `shown` is the default in words where the value says little."""
    metadata = {"help": help, "kind": kind, "shown": shown or str(default)}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def default_threads() -> int:
    """Physical cores that this process may use; with more than two, one of them is left to the screen."""
    cores = _physical_cores()
    return cores if cores <= 2 else cores - 1


def _physical_cores() -> int:
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    usable = os.sched_getaffinity(0)
    siblings: set[str] = set()
    for cpu in usable:
        try:
            siblings.add(Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text())
        except OSError:
            return len(usable)
    return max(1, len(siblings))


@dataclass(frozen=True, slots=True)
class Settings:
    """The options in force. Made by `load_settings`; every field but `notices` is an option."""

    model: str = _option("starter", TEXT, 'The model: "starter", a GGUF file, a model folder or a hub id.')
    weights: str = _option(
        "auto",
        matching(r"auto|full|int8|int4", "auto, full, int8 or int4"),
        "How the model's weights are held: auto as its file holds them where the kernels read that (Q4_1 or Q8_0), "
        "full as it runs, or quantised to 8 or 4 bits when it is loaded.",
    )
    window_tokens: int = _option(
        2048,
        whole(256),
        "The quota of one chat's window in tokens; rounded down to whole pages.",
    )
    page_size: int = _option(32, one_of((16, 32, 64, 128, 256)), "Tokens in one page of the window.")
    kv_format: KvFormat = _option(  # noqa: RUF009 - it returns a field
        KvFormat.AUTO,
        KV_FORMAT,
        "How full pages are kept: auto in 16 bits a value (bfloat16 on a GPU, float16 on a CPU); full in the type that "
        "the model runs in (float32 on a CPU); int8, k8v4, int4 and tq3 hold more tokens in the same memory, each less "
        "exactly than the one before (docs/kv-formats.md).",
    )
    policy: Policy = _option(Policy.ROUND_ROBIN, POLICY, EXPLAINED)  # noqa: RUF009 - it returns a field
    sessions: int = _option(2, whole(1, 64), "Chats that keep a window at the same time.")
    host_mib: int = _option(
        256,
        whole(0, 1 << 20),
        "MiB of ordinary memory for pages that left a window, so that forks, edits and chats that wait need not be "
        "computed again; 0 switches this off.",
    )
    guess_tokens: int = _option(
        8,
        whole(0, 64),
        "Tokens guessed ahead from what was said before; answers stay the same, and quotes come faster; 0 for none.",
    )
    device: str = _option(
        "auto", matching(r"auto|cpu|cuda(:\d+)?", "auto, cpu, cuda or cuda:N"), "Where the model runs."
    )
    threads: int = _option(
        default_threads,
        whole(1, 1024),
        "Processor threads for the model.",
        shown="the physical cores less one",
    )
    temperature: float = _option(
        0.2,
        number(0, 2),
        "How freely words are chosen; 0 always takes the likeliest. Small models need it low.",
    )
    top_k: int = _option(40, whole(0), "Choose among the k likeliest tokens only; 0 switches this off.")
    top_p: float = _option(
        0.95,
        number(0.01, 1),
        "Choose among the likeliest tokens of this total probability; 1 switches this off.",
    )
    min_p: float = _option(
        0.0,
        number(0, 0.99),
        "Choose among tokens at least this many times as likely as the likeliest only; 0 switches this off.",
    )
    # Off: of six facts in its prompt the starter model quotes six at 1, five at 1.05, four at 1.1 and none at 1.2.
    repetition_penalty: float = _option(
        1.0, number(0.1, 10), "How much less likely a token is that was said before; 1 switches this off."
    )
    presence_penalty: float = _option(0.0, number(-2, 2), "Taken off the score of tokens that were said before.")
    frequency_penalty: float = _option(
        0.0, number(-2, 2), "Taken off the score of a token for each time that it was said before."
    )
    penalty_tokens: int = _option(256, whole(1, 1_000_000), "How many of the chat's last tokens the penalties see.")
    stop: tuple[str, ...] = _option((), TEXTS, "Texts at which an answer ends, before them.", shown="none")
    banned: tuple[str, ...] = _option((), TEXTS, "Texts that no answer may contain, in any letter case.", shown="none")
    end_loops: Switch = _option(  # noqa: RUF009 - it returns a field
        Switch.ON, SWITCH, "End an answer that repeats one passage over and over."
    )
    thinking: Switch = _option(  # noqa: RUF009 - it returns a field
        Switch.OFF, SWITCH, "Let a model that can think before it answers do so; it costs tokens of the answer."
    )
    seed: int | None = _option(
        None, whole(0, 2**63 - 1), "The same seed gives the same answer.", shown="a new one each time"
    )
    max_tokens: int = _option(400, whole(1, 1_000_000), "The longest answer, in tokens.")
    recall: Switch = _option(  # noqa: RUF009 - it returns a field
        Switch.ON,
        SWITCH,
        "Read evicted turns and files back from the memory when they are needed.",
    )
    recall_share: float = _option(
        0.3, number(0.05, 0.5), "The largest part of the window for recalled text; at most half of what pins leave."
    )
    digests: Switch = _option(  # noqa: RUF009 - it returns a field
        Switch.ON,
        SWITCH,
        "Have the model sum up what left the window, in the background while nothing is asked.",
    )
    web_search: str = _option(
        "off", WEB_SEARCH, "What /web and ask --web ask: a SearXNG server by its address, or duckduckgo."
    )
    system_prompt: str | None = _option(
        None, TEXT, "What the model is told before every chat.", shown="the prompt that ships with aios-chat"
    )
    embedder: str = _option(
        "starter",
        TEXT,
        'What makes vectors of texts: "starter", a sentence-transformers folder or its hub id. After a change every '
        "stored passage is embedded anew, while search goes by words (docs/memory.md).",
    )
    image_embedder: str = _option(
        "off",
        TEXT,
        'Finds pictures by what they show: "off", the folder of a CLIP-style sentence-transformers model, or its hub '
        "id (docs/memory.md).",
    )
    ocr_languages: str = _option(
        "eng",
        matching(
            r"[A-Za-z0-9_/-]+(\+[A-Za-z0-9_/-]+)*",
            "Tesseract language names joined by +, such as eng+chi_sim",
        ),
        "Languages to look for in images and scanned pages.",
    )
    theme: str = _option("textual-dark", matching(r"[A-Za-z0-9_-]+", "the name of a theme"), "The screen's colours.")
    notices: tuple[str, ...] = ()
    """What was adjusted or not understood while loading, one sentence each."""
    constraint: Constraint | None = None
    """What a command's answer has to match."""

    def sampling(self) -> Sampling:
        """How answers are sampled."""
        return Sampling(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            seed=self.seed,
            max_tokens=self.max_tokens,
            stop=self.stop,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            penalty_tokens=self.penalty_tokens,
            banned=self.banned,
            constraint=self.constraint,
            end_loops=self.end_loops is Switch.ON,
        )

    def system_text(self) -> str:
        """The system prompt in force: the person's own, or the one that ships in assets/prompts."""
        if self.system_prompt is not None:
            return self.system_prompt
        from importlib.resources import files

        return files("assets").joinpath("prompts", "system.txt").read_text(encoding="utf-8").strip()


OPTIONS: tuple[Option, ...] = tuple(
    Option(
        name=f.name,
        help=f.metadata["help"],
        allowed=f.metadata["kind"].allowed,
        default=f.metadata["shown"],
        env=ENV_PREFIX + f.name.upper(),
        read=f.metadata["kind"].read,
    )
    for f in fields(Settings)
    if "kind" in f.metadata
)
"""All options in the order they are shown."""

_BY_NAME = {option.name: option for option in OPTIONS}


def load_settings(
    config_file: Path | None = None,
    overrides: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """The settings in force: defaults, then `config_file` (TOML, may be missing), then the variables
    AIOS_CHAT_<NAME>, then `overrides` (command line flags; a None there means not given).

    Raises SettingsError, one sentence, for an unreadable file, an unknown key or a value that is not allowed.
    """
    values: dict[str, object] = {}
    if config_file is not None:
        _take(values, _read_file(config_file), f"in {config_file}")
    environ = os.environ if environ is None else environ
    _take(values, {o.name: environ[o.env] for o in OPTIONS if environ.get(o.env)}, "in the environment")
    _take(values, {k: v for k, v in (overrides or {}).items() if v is not None}, "on the command line")
    settings = Settings(**cast(dict[str, Any], values))
    known = {o.env for o in OPTIONS} | NOT_OPTIONS
    strange = sorted(n for n in environ if n.startswith(ENV_PREFIX) and n not in known)
    notices = tuple(f"{name} is set in the environment but is not an option{_nearest_env(name)}." for name in strange)
    return _whole_pages(replace(settings, notices=notices))


def overridden(settings: Settings, overrides: Mapping[str, object]) -> Settings:
    """The settings with a command's own flags (None: not given). Raises SettingsError."""
    values: dict[str, object] = {}
    _take(values, {k: v for k, v in overrides.items() if v is not None}, "on the command line")
    return replace(settings, **cast(dict[str, Any], values))


def _take(values: dict[str, object], raw: Mapping[str, object], where: str) -> None:
    for name, value in raw.items():
        option = _BY_NAME.get(name)
        if option is None:
            raise SettingsError(f"There is no option {name!r} ({where}){_nearest(name)}.")
        try:
            values[name] = option.read(value)
        except ValueError:
            raise SettingsError(f"{name} is {value!r} {where}: it must be {option.allowed}.") from None


def _read_file(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path} is not valid TOML: {error}.") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path} is not UTF-8 text: save it as UTF-8.") from None
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}.") from None


def _whole_pages(settings: Settings) -> Settings:
    """Round the window down to whole pages, and say so."""
    size = settings.page_size
    pages = settings.window_tokens // size
    if pages < SMALLEST_WINDOW_PAGES:
        raise SettingsError(
            f"window_tokens is {settings.window_tokens} with page_size {size}: "
            f"it must be at least {SMALLEST_WINDOW_PAGES} pages, {SMALLEST_WINDOW_PAGES * size} tokens."
        )
    if pages * size == settings.window_tokens:
        return settings
    given = settings.window_tokens
    notice = f"window_tokens {given} is rounded down to {pages * size}, {pages} pages of {size} tokens."
    return replace(settings, window_tokens=pages * size, notices=(*settings.notices, notice))


def _nearest(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, _BY_NAME, n=1)
    return f"; did you mean {near[0]}" if near else "; the options are " + ", ".join(_BY_NAME)


def _nearest_env(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name.removeprefix(ENV_PREFIX).lower(), _BY_NAME, n=1)
    return f"; did you mean {_BY_NAME[near[0]].env}" if near else ""
