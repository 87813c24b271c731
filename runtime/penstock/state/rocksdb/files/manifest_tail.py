"""A reader that follows the MANIFEST of an open database. The file only grows, so each read decodes only the new part.

RocksDB starts another MANIFEST if the current one is very long or could not be written. The file CURRENT then names the
new MANIFEST, which has the same content in other edits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.state.rocksdb.files.manifest import Edit, Version, apply, read_edits_from

if TYPE_CHECKING:
    from pathlib import Path


class ManifestTail:
    """The reader of one database. Only one thread at a time may use it.

    Args:
        folder: folder of the database.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = ""
        self._end = 0
        """Offset of the end of the decoded part."""
        self.version = Version()
        """The files at the last read."""

    def current(self) -> str:
        """Return the name of the current MANIFEST."""
        return (self._folder / "CURRENT").read_text().strip()

    def size(self, name: str) -> int:
        """Return the size of a MANIFEST.

        Raises:
            FileNotFoundError: another MANIFEST is current.
        """
        return (self._folder / name).stat().st_size

    def read(self, name: str, end: int | None = None) -> list[Edit]:
        """Return the new edits of the MANIFEST up to an offset, or all edits if the last read was of another MANIFEST.

        Raises:
            ManifestUnreadable: the content has an unknown field or is cut off. The next read raises it again.
            FileNotFoundError: another MANIFEST is current.
        """
        begin = self._end if name == self._name else 0
        with (self._folder / name).open("rb") as file:
            file.seek(begin)
            content = file.read() if end is None else file.read(max(0, end - begin))
        edits, decoded = read_edits_from(content, begin)
        if name != self._name:
            self._name, self.version = name, Version()
        self._end = decoded
        apply(self.version, edits)
        return edits
