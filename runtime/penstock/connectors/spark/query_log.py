"""The log of a streaming query as part of a checkpoint.

Structured Streaming keeps in its checkpoint folder what it needs to go on: `offsets/<n>` before batch n runs,
`commits/<n>` after it, and under `sources/` what an offset alone does not say (which files the file source has seen).
Here that folder is a scratch copy on the driver's machine. The checkpoint holds what of it matters, taken while batch n is
being handed over, when the log stands still; at a restore it is laid anew in an empty folder, and the query repeats batch n
with the same offsets, which is skipped because its rows were staged before.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path

KEPT = 2
"""Entries of `offsets` and `commits`: the query looks at its last batch and the one before."""
_ENTRY = re.compile(r"([0-9]+)(\.compact)?")


def capture(folder: Path) -> str:
    """What a query needs of its log to go on. Text: base64 of deflated JSON, {path: content}."""
    files = [folder / "metadata", *_newest(folder / "offsets"), *_newest(folder / "commits")]
    for source in sorted((folder / "sources").glob("*")):
        files += _since_compaction(source)
    content = {file.relative_to(folder).as_posix(): file.read_text() for file in files if file.is_file()}
    return base64.b64encode(zlib.compress(json.dumps(content).encode())).decode("ascii")


def lay(captured: str, folder: Path) -> None:
    """Write it into an empty folder."""
    for name, text in json.loads(zlib.decompress(base64.b64decode(captured))).items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def offsets(captured: str) -> str:
    """Where the query stood, for people: the last entry of `offsets`."""
    content: dict[str, str] = json.loads(zlib.decompress(base64.b64decode(captured)))
    numbers = [int(name.split("/")[1]) for name in content if name.startswith("offsets/")]
    return content[f"offsets/{max(numbers)}"] if numbers else ""


def _entries(folder: Path) -> list[tuple[int, bool, Path]]:
    """(number, compacted, file), ascending; hidden files are checksums and drafts."""
    matches = [(_ENTRY.fullmatch(file.name), file) for file in folder.iterdir()] if folder.is_dir() else []
    return sorted((int(match[1]), match[2] is not None, file) for match, file in matches if match is not None)


def _newest(folder: Path) -> list[Path]:
    return [file for _, _, file in _entries(folder)[-KEPT:]]


def _since_compaction(folder: Path) -> list[Path]:
    """A source's entries from the newest one that sums up all before it."""
    entries = _entries(folder)
    first = max((index for index, (_, is_compact, _) in enumerate(entries) if is_compact), default=0)
    return [file for _, _, file in entries[first:]]
