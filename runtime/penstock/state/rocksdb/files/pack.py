"""The pack: the small files of a RocksDB snapshot in one file, a msgpack map from name to content.

The module imports neither RocksDB nor numpy, so that `penstock savepoint verify` and the operator can read packs.
"""

from __future__ import annotations

import re

import msgspec

from penstock.common.folders.storage_names import refused_name
from penstock.state.decoding import decoding

BACKEND = "rocksdb"
PACK = "small-files"
"""Name under which a handle lists the pack."""
CURRENT = "CURRENT"
"""File that names the current MANIFEST."""
CONFIG = "rocksdict-config.json"
"""File which states that keys are plain bytes. The Python binding reads the file when it opens a database."""
CONFIG_CONTENT = b'{"raw_mode":true,"prefix_extractors":{}}'
"""Content of the file after a restore.

The stored content is not used: with other settings, the binding would unpickle values.
"""

_MANIFEST = re.compile(r"MANIFEST-[0-9]{6,20}")
_TABLE = re.compile(r"[0-9]{6,20}\.sst")
_decode = msgspec.msgpack.Decoder(dict[str, bytes]).decode


def decode_pack(content: bytes, description: str) -> dict[str, bytes]:
    """Decode a pack. Check that it has the MANIFEST that CURRENT names, and only files that Penstock packs.

    Args:
        description: name of the file, for errors.

    Raises:
        CorruptStateFile: the content is not a msgpack map from name to content, or the current MANIFEST is missing.
        SnapshotTorn: the pack has a file that Penstock never packs.
    """
    with decoding(description):
        small = _decode(content)
    for name in small:
        if name not in (CURRENT, CONFIG) and not _MANIFEST.fullmatch(name):
            raise refused_name(name, description, "is not a file of a RocksDB snapshot")
    with decoding(description):
        manifest_of(small)
    return small


def manifest_of(small: dict[str, bytes]) -> bytes:
    """Return the content of the MANIFEST that CURRENT names.

    Raises:
        KeyError, ValueError: the pack has no CURRENT, or CURRENT does not name a MANIFEST in the pack.
    """
    name = small[CURRENT].decode().removesuffix("\n")
    if not _MANIFEST.fullmatch(name):
        raise ValueError(f"CURRENT names {name[:100]!r}, which is not a MANIFEST")
    return small[name]


def checked_table_name(name: object, description: str) -> str:
    """Return the name of an SST file.

    Raises:
        SnapshotTorn: the name is not that of an SST file of RocksDB.
    """
    if isinstance(name, str) and _TABLE.fullmatch(name):
        return name
    raise refused_name(name, description, "is not a file of a RocksDB snapshot")
