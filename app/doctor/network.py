"""What uses the network, and when; and does any part of aios-chat listen on a port right now?"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from app.doctor.check import Check, Status

NAME = "Network"
USES = (
    "used only to fetch a model that is not here yet (pip for the shipped ones, the Hugging Face hub for a hub id) and "
    "a web page that you name; "
    "chats, files and searches stay on this machine, and telemetry is off"
)
_PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
_LISTEN = "0A"
"""TCP_LISTEN in the kernel's table."""


def check(environ: Mapping[str, str] = os.environ, proc: Path = Path("/proc"), web_search: str = "off") -> Check:
    """Say when the network is used and what /web asks, name a proxy that will be used, and look for listening sockets
    of our processes."""
    asked = "web search is off" if web_search == "off" else f"/web and ask --web send their question to {web_search}"
    notes = [USES, asked]
    proxy = next((name for name in _PROXIES if environ.get(name)), None)
    if proxy is not None:
        notes.append(f"through the proxy of {proxy}")
    if environ.get("HF_HUB_OFFLINE") == "1":
        notes.append("HF_HUB_OFFLINE is set: hub models cannot be fetched")
    if not (proc / "net" / "tcp").exists():
        return Check(NAME, Status.OK, "; ".join([*notes, "open ports cannot be looked up on this system"]))
    open_ports = sorted(_listening(proc))
    if open_ports:
        ports = ", ".join(f"port {port} (process {pid})" for pid, port in open_ports)
        fix = "aios-chat opens no port by itself: find out what was loaded into that process."
        return Check(NAME, Status.WARNING, "; ".join([*notes, f"listening: {ports}"]), fix)
    return Check(NAME, Status.OK, "; ".join([*notes, "no process of aios-chat listens on a port"]))


def _listening(proc: Path) -> Iterator[tuple[int, int]]:
    """(process, port) of every TCP socket that a process of ours accepts connections on."""
    ports = dict(_listening_sockets(proc))
    for process in proc.glob("[0-9]*"):
        if not _is_ours(process):
            continue
        for target in _open_files(process):
            if target in ports:
                yield int(process.name), ports[target]


def _open_files(process: Path) -> Iterator[str]:
    try:
        descriptors = os.listdir(process / "fd")
    except OSError:
        return  # it ended while we looked, or is another user's
    for descriptor in descriptors:
        try:
            yield os.readlink(process / "fd" / descriptor)
        except OSError:
            continue  # closed while we looked


def _listening_sockets(proc: Path) -> Iterator[tuple[str, int]]:
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTEN:
                yield f"socket:[{fields[9]}]", int(fields[1].rpartition(":")[2], 16)


def _is_ours(process: Path) -> bool:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    if any(word.rpartition(b"/")[2] == b"aios-chat" for word in words[:2]):
        return True
    modules = [after for word, after in itertools.pairwise(words) if word == b"-m"]
    return any(module.startswith(b"app.host.") or module in (b"app", b"app.cli") for module in modules)
