"""Checksums of state files: crc32, as `crc32:` and 8 hex digits."""

from __future__ import annotations

import zlib

_BLOCK = 1 << 20


def checksum_of(content: bytes) -> str:
    """Return the checksum of the content.

    >>> checksum_of(b"123456789")
    'crc32:cbf43926'
    """
    return f"crc32:{zlib.crc32(content):08x}"


def file_checksum(path: str) -> str:
    """Return the checksum of a local file, read in blocks of 1 MiB."""
    crc = 0
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            crc = zlib.crc32(block, crc)
    return f"crc32:{crc:08x}"
