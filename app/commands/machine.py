"""`aios-chat doctor` and `aios-chat models`: what this machine has and can run."""

from __future__ import annotations

from dataclasses import asdict

from app.commands.session import as_json
from app.doctor.run import exit_code, run_checks
from app.models.listing import list_models
from app.paths import Paths
from app.settings import Settings

MIB = 1 << 20


def doctor(settings: Settings, *, json: bool) -> int:
    """Check the machine; 1 when something fails."""
    checks = []
    for check in run_checks(Paths.default(), settings.ocr_languages, settings.web_search):
        checks.append(check)
        if not json:
            print(f"{check.status.value:8} {check.name}: {check.detail}")
            if check.fix:
                print(f"{'':8} fix: {check.fix}")
    if json:
        print(as_json([asdict(check) for check in checks]))
    return exit_code(checks)


def models(settings: Settings, *, json: bool) -> int:
    """List models with what they cost: on disk, in memory by the form of their weights, and for each token of the
    window."""
    rows = list_models(Paths.default().models)
    if json:
        print(as_json([asdict(row) for row in rows]))
        return 0
    for row in rows:
        kv = f"{row.kv_bytes_per_token / 1024:.1f} KiB a token" if row.kv_bytes_per_token else "-"
        window = ""
        if row.kv_bytes_per_token:
            window = f", {row.kv_bytes_per_token * settings.window_tokens / MIB:.0f} MiB for {settings.window_tokens}"
        here = "here" if row.present else "not fetched yet"
        print(f"{row.name}  {row.family}  {row.bytes / MIB:.0f} MiB  {row.licence}  {here}")
        if row.weights:
            print("   weights in memory: " + ", ".join(f"{w.form} {w.bytes / MIB:,.0f} MiB" for w in row.weights))
        print(f"   KV: {kv}{window} tokens" if window else f"   KV: {kv}")
        if row.kv_bytes_per_token:
            room = row.kv_bytes_per_token * settings.window_tokens
            fits = ", ".join(f"{cost.format} {room // cost.bytes_per_token:,}" for cost in row.kv_formats)
            print(f"   tokens in the same memory by page format: {fits}")
    return 0
