"""`TypeSerializer`: the serialization of a program's own window class in state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from io import BytesIO
from typing import Generic, TypeVar

T = TypeVar("T")


class TypeSerializer(ABC, Generic[T]):
    """A serializer that writes values to a stream of bytes and reads them, for `WindowAssigner.get_window_serializer`."""

    @abstractmethod
    def serialize(self, element: T, stream: BytesIO, /) -> None: ...

    @abstractmethod
    def deserialize(self, stream: BytesIO, /) -> T: ...

    def to_namespace(self, window: T, /) -> tuple[int, ...]:
        """Return the namespace of the window's state."""
        stream = BytesIO()
        self.serialize(window, stream)
        return tuple(stream.getvalue())

    def from_namespace(self, namespace: tuple[int, ...], /) -> T:
        return self.deserialize(BytesIO(bytes(namespace)))


class VoidNamespaceSerializer(TypeSerializer[bytes]):
    """Serializer of the namespace of state that belongs to no window."""

    def serialize(self, element: bytes, stream: BytesIO) -> None:
        """Write nothing."""

    def deserialize(self, stream: BytesIO) -> bytes:
        return b""
