"""Files that hold a secret. Each use reads the file. So no message between processes contains the secret, and a new
secret takes effect at the next use.
"""

from __future__ import annotations

from pathlib import Path

from penstock.common.errors import InvalidJob, PenstockError
from penstock.common.folders.start_folder import absolute


def read_secret(path: str, name: str, kind: type[PenstockError] = InvalidJob) -> str:
    """Return the secret without surrounding white space. A relative path is relative to the start folder of the process.

    Args:
        name: the setting that names the file.
        kind: class of the error.

    Raises:
        PenstockError: the file cannot be read. The error has the class `kind`.
    """
    try:
        return Path(absolute(path)).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise kind(
            f"{name}={path!r} cannot be read: {reason}",
            remedy="mount the file at this path, readable for the user of the job",
        ) from error
