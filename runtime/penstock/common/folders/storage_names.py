"""Checks of names that come from storage: manifests, handles of state, packs of small files, archives.

A person who can write to the storage of a job chooses these names. An unchecked name would let that person write any
file. Every such name therefore passes one of the checks here before it is used. The checks allow only the
characters that Penstock itself writes. A name with other characters was written by another program.
"""

from __future__ import annotations

import re

from penstock.common.errors import SnapshotTorn

_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")
MAX_SEGMENTS = 16
"""Maximum number of segments of a relative path."""
_SHOWN = 100
_REMEDY = "do not use this snapshot. It was not written by Penstock, or it was changed"


def is_segment(name: object) -> bool:
    """Return whether a name is a single, visible path segment of ASCII letters, digits, `_`, `-` and `.`.

    >>> [is_segment(name) for name in ("000012.sst", "_metadata", "..", ".hidden", "a/b", "", "-rf", "ä", None)]
    [True, True, False, False, False, False, False, False, False]
    """
    return isinstance(name, str) and _SEGMENT.fullmatch(name) is not None


def is_relative_path(path: object) -> bool:
    """Return whether `is_segment` accepts all segments of a path, so that the path cannot leave its folder.

    >>> [is_relative_path(path) for path in ("shared/a1", "../a", "/etc/passwd", "s3://b/k", "a//b", "", "a\\\\b")]
    [True, False, False, False, False, False, False]
    """
    if not isinstance(path, str):
        return False
    segments = path.split("/", MAX_SEGMENTS)
    return len(segments) <= MAX_SEGMENTS and all(map(is_segment, segments))


def checked_segment(name: object, description: str) -> str:
    """Return the name if it is a path segment.

    Args:
        description: place in storage that holds the name, for the error.

    Raises:
        SnapshotTorn: the name is not a path segment.
    """
    if isinstance(name, str) and is_segment(name):
        return name
    raise refused_name(name, description, "is not a plain file name")


def checked_path(path: object, description: str) -> str:
    """Return the path if it cannot leave its folder. It raises the errors of `checked_segment`."""
    if isinstance(path, str) and is_relative_path(path):
        return path
    raise refused_name(path, description, "is outside of the snapshot's folder or not a plain path")


def refused_name(name: object, description: str, reason: str) -> SnapshotTorn:
    """Return the error for a name from storage that must not be used."""
    text = repr(name)
    shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    return SnapshotTorn(f"{description} names the file {shown}, which {reason}", remedy=_REMEDY)
