"""Names in a checkpoint root, and what may stand in a manifest as a path."""

from __future__ import annotations

import re
import uuid

from penstock.checkpoint.store.object_store import join_url

METADATA = "_metadata"
SHARED = "shared"
LEADER = "leader"
LATEST = "latest"
BASE_SUFFIX = ".base"
_CHECKPOINT = re.compile(r"chk-([1-9][0-9]*)")
_SAVEPOINT = re.compile(r"savepoint-([0-9A-Za-z_.-]{1,6})-([0-9a-f]{12})")
_CLAIM = re.compile(r"[1-9][0-9]*")
_BASE = re.compile(r"([1-9][0-9]*)\.base")


def checkpoint_folder(checkpoint_id: int) -> str:
    """
    >>> checkpoint_folder(7)
    'chk-7'
    """
    return f"chk-{checkpoint_id}"


def parse_checkpoint_folder(name: str) -> int | None:
    """
    >>> parse_checkpoint_folder("chk-12"), parse_checkpoint_folder("chk-x"), parse_checkpoint_folder("chk-07")
    (12, None, None)
    """
    match = _CHECKPOINT.fullmatch(name)
    return int(match[1]) if match else None


def new_savepoint_folder(job_id: str) -> str:
    """`savepoint-<first 6 of the job id>-<12 random hex digits>`."""
    return f"savepoint-{job_id[:6]}-{uuid.uuid4().hex[:12]}"


def is_savepoint_folder(name: str) -> bool:
    """
    >>> is_savepoint_folder("savepoint-5f1a2b-0123456789ab"), is_savepoint_folder("shared")
    (True, False)
    """
    return _SAVEPOINT.fullmatch(name) is not None


def new_shared_path() -> str:
    """A name nobody else can choose, relative to the job's root."""
    return f"{SHARED}/{uuid.uuid4().hex}"


def claim_path(epoch: int) -> str:
    return f"{LEADER}/{epoch}"


def base_path(epoch: int) -> str:
    return f"{LEADER}/{epoch}{BASE_SUFFIX}"


def parse_claim(name: str) -> int | None:
    """
    >>> parse_claim("3"), parse_claim("3.base"), parse_claim("probe-1")
    (3, None, None)
    """
    return int(name) if _CLAIM.fullmatch(name) else None


def parse_base(name: str) -> int | None:
    match = _BASE.fullmatch(name)
    return int(match[1]) if match else None


def is_safe_relative(path: str) -> bool:
    """Whether a manifest's path stays inside its folder. A manifest is data from outside: it may say anything.

    >>> [is_safe_relative(path) for path in ("shared/a1", "../a", "/etc/passwd", "s3://b/k", "a//b", "")]
    [True, False, False, False, False, False]
    """
    if not path or "\\" in path or "://" in path or "\0" in path:
        return False
    return all(part not in ("", ".", "..") for part in path.split("/"))


def metadata_url(folder_url: str) -> str:
    return join_url(folder_url, METADATA)
