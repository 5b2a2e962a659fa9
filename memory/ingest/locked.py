"""Encrypted DOCX, PPTX and XLSX files: opened with their password, into a file that is gone when it was read."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from memory.ingest import zipped
from memory.ingest.extract import Extract, Job, Reader
from memory.types import NeedsPasswordError


def read(job: Job, reader: Reader) -> Extract:
    """What `reader` reads of the opened file. Raises NeedsPasswordError without the right password."""
    import msoffcrypto
    from msoffcrypto.exceptions import InvalidKeyError

    if not job.password:
        raise NeedsPasswordError(f"{job.name} is encrypted and needs a password.")
    with tempfile.TemporaryDirectory() as folder:
        opened = Path(folder, "opened")
        try:
            with job.path.open("rb") as file, opened.open("wb") as out:
                office = msoffcrypto.OfficeFile(file)
                office.load_key(password=job.password, verify_password=True)
                office.decrypt(out)
        except InvalidKeyError as error:
            raise NeedsPasswordError(
                f"{job.name} is encrypted and needs another password than the one given."
            ) from error
        except Exception as error:  # msoffcrypto meets a broken file with errors of every kind
            raise zipped.damaged(job.name) from error
        return reader(replace(job, path=opened, password=""))
