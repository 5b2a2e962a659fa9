"""Fetches a model from the Hugging Face hub into the data folder, in a process of its own.

Its own process so that the screen's process never imports huggingface_hub, and so that cancelling ends it. The hub
library resumes a download that was cut.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from app.models.errors import FetchError

COMPLETE = ".complete"
PATTERNS = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "README.md")


def hub_home(repository: str, models_folder: Path) -> Path:
    """Where a hub model lies once fetched."""
    return models_folder / "hub" / repository.replace("/", "--")


async def fetch_from_hub(repository: str, models_folder: Path) -> Path:
    """The folder of a hub model (safetensors), downloaded unless it is here. Raises FetchError (one sentence)."""
    home = hub_home(repository, models_folder)
    complete = home / COMPLETE
    if await asyncio.to_thread(complete.exists):
        return home
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "app.models.hub", repository, str(home)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"},
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            _kill(process)
            await asyncio.shield(process.wait())
    if process.returncode != 0:
        said = output.decode("utf-8", "replace").strip()
        raise FetchError(said or f"{repository} could not be downloaded; try again.")
    await asyncio.to_thread(complete.touch)
    return home


def _kill(process: asyncio.subprocess.Process) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _download(repository: str, home: Path) -> str:
    """Runs in the child: download, and return "" or one sentence about what went wrong."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    unreachable = f"{repository} could not be downloaded: the Hugging Face hub cannot be reached; go online."
    try:
        snapshot_download(repository, local_dir=home, allow_patterns=list(PATTERNS))
    except GatedRepoError:
        return f"{repository} asks for its terms to be accepted: do so on its page, then run `hf auth login`."
    except RepositoryNotFoundError:
        return f"There is no public model {repository} on the Hugging Face hub; check its name."
    except HfHubHTTPError as error:
        return f"{repository} could not be downloaded: the hub answered {error.response.status_code}; try later."
    except OSError as error:
        return f"{repository} could not be stored: {error.strerror}." if error.errno else unreachable
    except Exception as error:
        # The hub library passes its HTTP library's errors through; their class is all that tells them apart.
        if type(error).__module__.partition(".")[0] in ("httpx", "httpcore", "requests", "huggingface_hub"):
            return unreachable
        return f"{repository} could not be downloaded ({type(error).__name__})."
    if not (home / "config.json").exists() or not any(home.glob("*.safetensors")):
        return f"{repository} holds no config.json with .safetensors weights, the form that aios-chat reads."
    return ""


if __name__ == "__main__":
    sentence = _download(sys.argv[1], Path(sys.argv[2]))
    print(sentence)
    sys.exit(1 if sentence else 0)
