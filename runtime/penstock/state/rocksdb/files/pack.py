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
"""Names the current MANIFEST."""
CONFIG = "rocksdict-config.json"
"""States that keys are plain bytes. The binding reads it when it opens a database."""
CONFIG_CONTENT = b'{"raw_mode":true,"prefix_extractors":{}}'
"""Content that a restore writes instead of the stored one. The binding would unpickle values if the settings were different."""

_MANIFEST = re.compile(r"MANIFEST-[0-9]{6,20}")
_TABLE = re.compile(r"[0-9]{6,20}\.sst")
_decode = msgspec.msgpack.Decoder(dict[str, bytes]).decode


def decode_pack(content: bytes, description: str) -> dict[str, bytes]:
    """Decode a pack and check that Penstock could have written it: one MANIFEST, the CURRENT that names it, the binding's settings.

    Args:
        description: name of the file, for errors.

    Raises:
        CorruptStateFile: the content is not a msgpack map from name to content.
        SnapshotTorn: it has a file that Penstock never packs.
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
        KeyError, ValueError: the pack has no such file.
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
