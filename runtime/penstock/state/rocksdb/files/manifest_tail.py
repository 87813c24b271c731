"""The MANIFEST of an open database, followed: it only grows, so each look decodes what came since the last one.

RocksDB begins another MANIFEST when one is very long or could not be written; the file CURRENT names it then. It says the same, in other edits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.state.rocksdb.files.manifest import Edit, Version, apply, read_on

if TYPE_CHECKING:
    from pathlib import Path


class ManifestTail:
    """For one thread at a time.

    Args:
        folder: the database's.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = ""
        self._end = 0
        """Of what was decoded."""
        self.version = Version()
        """The files as of the last look."""

    def current(self) -> str:
        """The MANIFEST that counts now."""
        return (self._folder / "CURRENT").read_text().strip()

    def size(self, name: str) -> int:
        """
        Raises:
            FileNotFoundError: another one counts.
        """
        return (self._folder / name).stat().st_size

    def read(self, name: str, end: int | None = None) -> list[Edit]:
        """What the MANIFEST says more than at the last look, up to an offset; all of it if that was at another one.

        Raises:
            ManifestUnreadable: and again at the next look.
            FileNotFoundError: another one counts.
        """
        begin = self._end if name == self._name else 0
        with (self._folder / name).open("rb") as file:
            file.seek(begin)
            content = file.read() if end is None else file.read(max(0, end - begin))
        edits, decoded = read_on(content, begin)
        if name != self._name:
            self._name, self.version = name, Version()
        self._end = decoded
        apply(self.version, edits)
        return edits
