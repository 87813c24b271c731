"""Files that hold a secret: read where it is used, each time, so that it is in no payload and a new one is taken."""

from __future__ import annotations

from pathlib import Path

from penstock.common.errors import InvalidJob, PenstockError
from penstock.common.folders.start_folder import absolute


def read_secret(path: str, name: str, kind: type[PenstockError] = InvalidJob) -> str:
    """Without white space around it. A relative path is relative to where the process was started.

    Args:
        name: of the setting that names the file.

    Raises:
        PenstockError: of this kind: it cannot be read.
    """
    try:
        return Path(absolute(path)).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise kind(
            f"{name}={path!r} cannot be read: {why}",
            remedy="mount the file there, readable for the job's user",
        ) from error
