"""Frames over TCP that only the holders of a key can write, read, change, leave out or repeat.

The module does not use TLS. Both ends already share a random key, which travels to the tasks with the job's payload. So
there is no certificate to create or to check. Two threads can use the two directions. This module does no I/O. The
parts are standard: HKDF and AES-GCM, both from `cryptography`.

1. The server sends 32 random bytes, and the client answers with 32 random bytes.
2. Both sides derive two keys from the shared key and these bytes (HKDF-SHA256), one key per direction. A frame of one connection
   is not valid on another connection or in the other direction.
3. All further bytes are sealed frames: a length (4 bytes, big endian), then as many bytes. The last 16 bytes are the
   tag. The nonce is the number of the frame in its direction, and the tag authenticates the length too. A frame that does not
   decrypt ends the connection.
4. The client's first frame identifies the client and proves that the client has the key. The server's first frame
   proves that the server has the key, too.

The key lives as long as one job's cluster, so there is no forward secrecy within the cluster. A key that is stolen later decrypts
recordings of the same cluster, but not recordings of another cluster.
"""

from __future__ import annotations

import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

HELLO_BYTES = 32
"""Number of random bytes that each side sends."""
MAX_FRAME = 256 * 1024 * 1024
"""Maximum size of a sealed frame in bytes. It is large because collected results travel in acks."""
_LENGTH = struct.Struct(">I")
_TAG_BYTES = 16
_KEY_BYTES = 32
CONTROL_CHANNEL = b"penstock control channel 1"
"""Purpose that keys are derived for. Each purpose derives different keys from the same shared key."""


class NotAuthentic(ConnectionError):
    """The error for a frame that the holder of the key did not send, or that was changed on the way."""


def derive_keys(
    token: str, server_random: bytes, client_random: bytes, purpose: bytes = CONTROL_CHANNEL
) -> tuple[bytes, bytes]:
    """Return the two keys of one connection: for the frames of the client, and for the frames of the server."""
    kdf = HKDF(SHA256(), 2 * _KEY_BYTES, salt=server_random + client_random, info=purpose)
    keys = kdf.derive(token.encode())
    return keys[:_KEY_BYTES], keys[_KEY_BYTES:]


class Sealer:
    """An encoder for the frames of one direction, in order."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)
        self._count = 0

    def seal(self, body: bytes) -> bytes:
        """Return the body as a sealed frame.

        Raises:
            ValueError: the frame would be too long.
        """
        size = len(body) + _TAG_BYTES
        if size > MAX_FRAME:
            raise ValueError(f"a frame of {size} bytes exceeds the limit of the control channel, {MAX_FRAME} bytes")
        length = _LENGTH.pack(size)
        nonce = self._count.to_bytes(12, "big")
        self._count += 1
        return length + self._cipher.encrypt(nonce, body, length)


class Opener:
    """A decoder for the frames of one direction, in order. The bytes may arrive in pieces of any size.

    Args:
        key: the key of this direction.
        limit: maximum size of a frame in bytes. The opener rejects a longer frame before it waits for the bytes.
    """

    def __init__(self, key: bytes, limit: int = MAX_FRAME) -> None:
        self.limit = limit
        self._cipher = AESGCM(key)
        self._count = 0
        self._received = bytearray()

    def feed(self, received: bytes) -> None:
        self._received += received

    def take(self) -> bytes | None:
        """Return the next frame if all of its bytes have arrived, else None.

        Raises:
            NotAuthentic: the frame is too long or does not decrypt. The caller must not read from this peer again.
        """
        received = self._received
        if len(received) < _LENGTH.size:
            return None
        (size,) = _LENGTH.unpack_from(received)
        if not _TAG_BYTES <= size <= self.limit:
            raise NotAuthentic(f"a frame of {size} bytes is too short or too long")
        end = _LENGTH.size + size
        if len(received) < end:
            return None
        nonce = self._count.to_bytes(12, "big")
        try:
            with memoryview(received) as view:
                body = self._cipher.decrypt(nonce, bytes(view[_LENGTH.size : end]), bytes(view[: _LENGTH.size]))
        except InvalidTag:
            raise NotAuthentic(
                "a frame cannot be decrypted: the peer has another secret, or the data was changed"
            ) from None
        self._count += 1
        del received[:end]
        return body
