"""`TypeSerializer`: how a program's own kind of window is written into state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from io import BytesIO
from typing import Generic, TypeVar

T = TypeVar("T")


class TypeSerializer(ABC, Generic[T]):
    """Writes values to a stream of bytes and reads them back, for `WindowAssigner.get_window_serializer`."""

    @abstractmethod
    def serialize(self, element: T, stream: BytesIO) -> None: ...

    @abstractmethod
    def deserialize(self, stream: BytesIO) -> T: ...

    def to_namespace(self, window: T) -> tuple[int, ...]:
        """The window as the namespace of its state."""
        stream = BytesIO()
        self.serialize(window, stream)
        return tuple(stream.getvalue())

    def from_namespace(self, namespace: tuple[int, ...]) -> T:
        return self.deserialize(BytesIO(bytes(namespace)))


class VoidNamespaceSerializer(TypeSerializer[bytes]):
    """Of state that belongs to no window."""

    def serialize(self, element: bytes, stream: BytesIO) -> None:
        """Nothing is written."""

    def deserialize(self, stream: BytesIO) -> bytes:
        return b""
