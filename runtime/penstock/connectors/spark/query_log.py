"""The log of a streaming query as part of a checkpoint.

Structured Streaming stores its progress in its checkpoint folder. It writes `offsets/<n>` before batch n runs and `commits/<n>` after it.
`sources/` has information that an offset does not contain, such as the files that the file source has seen.

Here, that folder is a temporary copy on the driver's machine. A checkpoint contains the part that a restore needs. The feed captures this
part while the query hands over batch n, because the log does not change then. A restore writes the part into an empty folder. The query
then repeats batch n with the same offsets. The feed skips the batch, because its rows were staged before.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path

KEPT = 2
"""Number of kept entries of `offsets` and `commits`. The query reads the entries of its last batch and of the batch before."""
_ENTRY = re.compile(r"([0-9]+)(\.compact)?")


def capture(folder: Path) -> str:
    """Return the part of the log that a query needs to continue. The text is base64 of deflated JSON, {path: content}."""
    files = [folder / "metadata", *_newest(folder / "offsets"), *_newest(folder / "commits")]
    for source in sorted((folder / "sources").glob("*")):
        files += _since_compaction(source)
    content = {file.relative_to(folder).as_posix(): file.read_text() for file in files if file.is_file()}
    return base64.b64encode(zlib.compress(json.dumps(content).encode())).decode("ascii")


def lay(captured: str, folder: Path) -> None:
    """Write the captured log into an empty folder."""
    for name, text in json.loads(zlib.decompress(base64.b64decode(captured))).items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def offsets(captured: str) -> str:
    """Return the query's position for people to read: the last entry of `offsets`."""
    content: dict[str, str] = json.loads(zlib.decompress(base64.b64decode(captured)))
    numbers = [int(name.split("/")[1]) for name in content if name.startswith("offsets/")]
    return content[f"offsets/{max(numbers)}"] if numbers else ""


def _entries(folder: Path) -> list[tuple[int, bool, Path]]:
    """Return (number, compacted, file) of each entry, ascending. Hidden files are checksums and drafts, so they are skipped."""
    matches = [(_ENTRY.fullmatch(file.name), file) for file in folder.iterdir()] if folder.is_dir() else []
    return sorted((int(match[1]), match[2] is not None, file) for match, file in matches if match is not None)


def _newest(folder: Path) -> list[Path]:
    return [file for _, _, file in _entries(folder)[-KEPT:]]


def _since_compaction(folder: Path) -> list[Path]:
    """Return the newest compacted entry of a source, and all later entries."""
    entries = _entries(folder)
    first = max((index for index, (_, is_compact, _) in enumerate(entries) if is_compact), default=0)
    return [file for _, _, file in entries[first:]]
