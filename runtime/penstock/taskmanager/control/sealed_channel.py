"""Frames over TCP that nobody without the key can write, read, change, leave out or repeat.

Why not TLS: both ends have a random key in common already, which travels to the tasks with the job's payload, so there is
no certificate to make or to check, each direction can be used by a thread of its own, and the whole is pure. The pieces are
the usual ones: HKDF and AES-GCM, both from `cryptography`.

1. The server says 32 random bytes, the client answers with 32 of its own.
2. Both derive two keys, one for each direction, from the common key and these bytes (HKDF-SHA256): what was sent over one
   connection means nothing on another, nor in the other direction.
3. From there on all is sealed frames: a length (4 bytes, big endian), then as many bytes, the last 16 of which are the
   tag. The number of a frame in its direction is its nonce, its length is authenticated with it. A frame that does not open
   ends the connection.
4. The client's first frame says who it is and thereby proves that it has the key; the server's first one proves the same.

Nothing is remembered of a connection when it is over: the key lives as long as one job's cluster, so that a later theft of
it is of no use for what was recorded only if the recording is of another cluster.
"""

from __future__ import annotations

import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

HELLO_BYTES = 32
"""Random bytes of each side."""
MAX_FRAME = 256 * 1024 * 1024
"""Bytes of a sealed frame: collected results travel in acks."""
_LENGTH = struct.Struct(">I")
_TAG_BYTES = 16
_KEY_BYTES = 32
CONTROL_CHANNEL = b"penstock control channel 1"
"""What keys are derived for; with one key each purpose has others."""


class NotAuthentic(ConnectionError):
    """What came is not from somebody with the key, or not what was sent."""


def derive_keys(
    token: str, server_random: bytes, client_random: bytes, purpose: bytes = CONTROL_CHANNEL
) -> tuple[bytes, bytes]:
    """Keys of one connection: of what the client sends, of what the server sends."""
    kdf = HKDF(SHA256(), 2 * _KEY_BYTES, salt=server_random + client_random, info=purpose)
    keys = kdf.derive(token.encode())
    return keys[:_KEY_BYTES], keys[_KEY_BYTES:]


class Sealer:
    """Makes the frames of one direction, in order."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)
        self._count = 0

    def seal(self, body: bytes) -> bytes:
        """
        Raises:
            ValueError: the frame would be too long.
        """
        size = len(body) + _TAG_BYTES
        if size > MAX_FRAME:
            raise ValueError(f"a frame of {size} bytes is more than the control channel's {MAX_FRAME}")
        length = _LENGTH.pack(size)
        nonce = self._count.to_bytes(12, "big")
        self._count += 1
        return length + self._cipher.encrypt(nonce, body, length)


class Opener:
    """Opens the frames of one direction, in order, out of bytes that come in any pieces.

    Args:
        key: of this direction.
        limit: bytes that a frame may have; more is held against the peer before it is waited for.
    """

    def __init__(self, key: bytes, limit: int = MAX_FRAME) -> None:
        self.limit = limit
        self._cipher = AESGCM(key)
        self._count = 0
        self._received = bytearray()

    def feed(self, received: bytes) -> None:
        self._received += received

    def take(self) -> bytes | None:
        """The next frame, if it is whole.

        Raises:
            NotAuthentic: it is too long or does not open; nothing may be read from this peer any more.
        """
        held = self._received
        if len(held) < _LENGTH.size:
            return None
        (size,) = _LENGTH.unpack_from(held)
        if not _TAG_BYTES <= size <= self.limit:
            raise NotAuthentic(f"a frame of {size} bytes")
        end = _LENGTH.size + size
        if len(held) < end:
            return None
        nonce = self._count.to_bytes(12, "big")
        try:
            with memoryview(held) as view:
                body = self._cipher.decrypt(nonce, bytes(view[_LENGTH.size : end]), bytes(view[: _LENGTH.size]))
        except InvalidTag:
            raise NotAuthentic("a frame that does not open") from None
        self._count += 1
        del held[:end]
        return body
