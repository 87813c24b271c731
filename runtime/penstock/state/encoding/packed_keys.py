"""Keys of one type as fixed-width numbers, so that a few calls into numpy hash and compare thousands of keys.

Text becomes its UTF-8 bytes, padded with zeros to whole 64-bit words. An integer is one word. Text with a zero byte, long text, integers
beyond 64 bits and keys of other types are not packed. Two packed keys of a kind are equal exactly if the Python keys are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    Words = npt.NDArray[np.uint64]
    Rows = npt.NDArray[np.int64]

WORD = 8
LONGEST = 64
"""Maximum bytes of a text that is packed. Longer keys gain little, because their comparison takes longer than the search."""


@dataclass(frozen=True, eq=False)
class PackedKeys(Sequence[Any]):
    """Keys of one kind.

    Attributes:
        kind: `str` or `int`.
        words: one row for each key. The array is never changed.
    """

    kind: type
    words: Words

    @staticmethod
    def of_column(column: pa.Array) -> PackedKeys | None:
        """Pack a column. Return None if a key cannot be packed.

        >>> PackedKeys.of_column(pa.array(["a", "sensor_12"])).to_list()
        ['a', 'sensor_12']
        """
        kind = column.type
        if column.null_count:
            return None
        if pa.types.is_integer(kind) and not pa.types.is_uint64(kind):
            longs = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
            return PackedKeys(int, longs.view(np.uint64).reshape(-1, 1))
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            words = _packed_text(column, np.int32 if pa.types.is_string(kind) else np.int64)
            return None if words is None else PackedKeys(str, words)
        return None

    @staticmethod
    def of_list(keys: Sequence[Any]) -> PackedKeys | None:
        """Pack Python objects as `of_column` does."""
        kinds = set(map(type, keys))
        try:
            if kinds == {str}:
                return PackedKeys.of_column(pa.array(keys, pa.large_string()))
            if kinds == {int}:
                return PackedKeys.of_column(pa.array(keys, pa.int64()))
        except (UnicodeEncodeError, OverflowError):
            pass  # text that UTF-8 cannot encode, or an integer beyond 64 bits
        return None

    def __len__(self) -> int:
        return len(self.words)

    @overload
    def __getitem__(self, at: int) -> Any: ...

    @overload
    def __getitem__(self, at: slice) -> PackedKeys: ...

    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return PackedKeys(self.kind, self.words[at])
        return PackedKeys(self.kind, self.words[at][None]).to_list()[0]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.to_list())

    def take(self, places: Rows) -> PackedKeys:
        """Return the keys at these places, in this order."""
        return PackedKeys(self.kind, self.words[places])

    def to_column(self) -> pa.Array:
        if self.kind is int:
            return pa.array(np.ascontiguousarray(self.words[:, 0]).view(np.int64))
        octets = np.ascontiguousarray(self.words).view(np.uint8)
        filled = octets != 0
        offsets = np.zeros(len(octets) + 1, np.int64)
        np.cumsum(np.count_nonzero(filled, axis=1), out=offsets[1:])
        return pa.LargeStringArray.from_buffers(len(octets), pa.py_buffer(offsets), pa.py_buffer(octets[filled]))

    def to_list(self) -> list[Any]:
        keys: list[Any] = self.to_column().to_pylist()
        return keys


def _packed_text(column: pa.Array, offset_type: type[np.signedinteger[Any]]) -> Words | None:
    if not len(column):
        return np.empty((0, 1), np.uint64)
    _, offset_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offset_buffer, offset_type)[column.offset : column.offset + len(column) + 1]
    lengths = offsets[1:] - offsets[:-1]
    longest = int(lengths.max())
    if longest > LONGEST:
        return None
    octets = np.zeros((len(column), max(1, -(-longest // WORD)) * WORD), np.uint8)
    if longest:
        data = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]
        if not data.all():
            return None
        if int(lengths.min()) == longest:
            octets[:, :longest] = data.reshape(-1, longest)
        else:
            octets[np.arange(octets.shape[1]) < lengths[:, None]] = data
    return octets.view(np.uint64)
