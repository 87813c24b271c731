"""Findings of files that have not changed since the last run, so that only edited files are read again.

An entry is valid for the same path, the same bytes and the same rules. The file is in `build/` and can be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path

from tools.prose.rules import Finding

_FOLDER = Path(__file__).parent


class Cache:
    """The findings of each file by a digest of its bytes."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._rules = b"".join(
            path.read_bytes() for path in sorted(_FOLDER.iterdir()) if path.suffix == ".py" or path.name == "rules.yaml"
        )
        try:
            entries = json.loads(file.read_text())
        except (OSError, ValueError):
            entries = {}
        self._entries: dict[str, list[list[object]]] = entries if isinstance(entries, dict) else {}

    def digest(self, name: str, content: bytes) -> str:
        """Return the key of a file's findings."""
        return hashlib.sha256(b"\0".join([self._rules, name.encode(), content])).hexdigest()

    def find(self, digest: str) -> list[Finding] | None:
        """Return the findings that are known, None if the file must be read."""
        entry = self._entries.get(digest)
        return None if entry is None else [Finding(*fields) for fields in entry]  # type: ignore[arg-type]

    def save(self, found: Mapping[str, Iterable[Finding]]) -> None:
        """Keep only these findings. Ignore a cache that is not writable."""
        scratch = self._file.with_suffix(f".{os.getpid()}")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            scratch.write_text(
                json.dumps({digest: [astuple(one) for one in findings] for digest, findings in found.items()})
            )
            scratch.replace(self._file)
        except OSError:
            with suppress(OSError):
                scratch.unlink(missing_ok=True)
