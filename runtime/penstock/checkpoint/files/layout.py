"""Names in a checkpoint root."""

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
    """Return the name of a checkpoint's folder.

    >>> checkpoint_folder(7)
    'chk-7'
    """
    return f"chk-{checkpoint_id}"


def parse_checkpoint_folder(name: str) -> int | None:
    """Return the number of the checkpoint in a folder's name, or None for any other name.

    >>> parse_checkpoint_folder("chk-12"), parse_checkpoint_folder("chk-x"), parse_checkpoint_folder("chk-07")
    (12, None, None)
    """
    match = _CHECKPOINT.fullmatch(name)
    return int(match[1]) if match else None


def new_savepoint_folder(job_id: str) -> str:
    """Return `savepoint-<first 6 of the job id>-<12 random hex digits>`."""
    return f"savepoint-{job_id[:6]}-{uuid.uuid4().hex[:12]}"


def is_savepoint_folder(name: str) -> bool:
    """Return whether the name is that of a savepoint's folder.

    >>> is_savepoint_folder("savepoint-5f1a2b-0123456789ab"), is_savepoint_folder("shared")
    (True, False)
    """
    return _SAVEPOINT.fullmatch(name) is not None


def new_shared_path() -> str:
    """Return a unique random name, relative to the job's root."""
    return f"{SHARED}/{uuid.uuid4().hex}"


def claim_path(epoch: int) -> str:
    return f"{LEADER}/{epoch}"


def base_path(epoch: int) -> str:
    return f"{LEADER}/{epoch}{BASE_SUFFIX}"


def parse_claim(name: str) -> int | None:
    """Return the number of the claim in a file's name, or None for any other name.

    >>> parse_claim("3"), parse_claim("3.base"), parse_claim("probe-1")
    (3, None, None)
    """
    return int(name) if _CLAIM.fullmatch(name) else None


def parse_base(name: str) -> int | None:
    match = _BASE.fullmatch(name)
    return int(match[1]) if match else None


def metadata_url(folder_url: str) -> str:
    return join_url(folder_url, METADATA)
