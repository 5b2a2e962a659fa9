"""Is Tesseract there, with the languages that the settings name? RapidOCR alone reads pages of Latin script worse."""

from __future__ import annotations

import re
import shutil
import subprocess

from app.doctor.check import Check, Status

TIMEOUT_SECONDS = 20
NAME = "Tesseract"


def check(languages: str = "eng") -> Check:
    """Run `tesseract` for its version and languages; `languages` is joined by + as in the settings ("eng+chi_sim")."""
    binary = shutil.which("tesseract")
    if binary is None:
        detail = "not installed: scanned pages and images are read by RapidOCR alone, which is worse at Latin scripts"
        fix = "Install it: `apt install tesseract-ocr` or `brew install tesseract`."
        return Check(NAME, Status.WARNING, detail, fix)
    try:
        version = _run(binary, "--version").splitlines()[0].removeprefix("tesseract ").strip()
        have = _run(binary, "--list-langs").splitlines()[1:]
    except (OSError, subprocess.SubprocessError, IndexError) as error:
        detail = f"{binary} does not run ({type(error).__name__})"
        return Check(NAME, Status.WARNING, detail, "Reinstall Tesseract.")
    listed = ", ".join(sorted(line.strip() for line in have if line.strip() and line.strip() != "osd"))
    detail = f"{version}, {binary}; languages: {listed or 'none'}"
    missing = [language for language in re.split(r"\+", languages) if language and language not in have]
    if missing:
        packages = " ".join(f"tesseract-ocr-{language.replace('_', '-')}" for language in missing)
        fix = f"Install the missing {', '.join(missing)}: `apt install {packages}`."
        return Check(NAME, Status.WARNING, detail, fix)
    return Check(NAME, Status.OK, detail)


def _run(binary: str, option: str) -> str:
    done = subprocess.run(
        [binary, option],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # version 3 writes both answers to stderr
        text=True,
        errors="replace",
        timeout=TIMEOUT_SECONDS,
        check=True,
    )
    return done.stdout
