"""The schema of a message: from a generated class, or from a descriptor set that `protoc` has written.

A schema is picklable, because it contains serialized descriptors and no classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from penstock.common.errors import InvalidJob
from penstock.connectors.formats.protobuf.file_messages import FileMessage, of_descriptor
from penstock.connectors.formats.protobuf.package import package


class ProtobufSchema:
    """The schema of a message.

    Args:
        descriptors: a serialized `FileDescriptorSet`, with all imports of the message's file.
        name: the name of the message, with its package.
    """

    def __init__(self, descriptors: bytes, name: str) -> None:
        self.descriptors = descriptors
        self.name = name
        assert self.descriptor

    @classmethod
    def of(cls, message: Any) -> ProtobufSchema:
        """Return the schema of a generated class.

        Raises:
            InvalidJob: `message` is not a generated class.
        """
        descriptor = getattr(message, "DESCRIPTOR", None)
        if descriptor is None or not hasattr(descriptor, "fields_by_name"):
            raise InvalidJob(
                f"{message!r} is not the class of a Protobuf message",
                remedy="give a class of a module that protoc has generated",
            )
        found = package("descriptor_pb2").FileDescriptorSet()
        for file in _with_imports(descriptor.file, set()):
            file.CopyToProto(found.file.add())
        return cls(found.SerializeToString(), descriptor.full_name)

    @classmethod
    def parse_file(cls, path: str, name: str) -> ProtobufSchema:
        """Return the schema from a file that `protoc --include_imports --descriptor_set_out=PATH` has written.

        Raises:
            InvalidJob: the file does not exist, or it has no such message.
        """
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            raise InvalidJob(
                f"descriptor set {path!r} cannot be read: {error.strerror}",
                remedy="write it with protoc --include_imports --descriptor_set_out=…",
            ) from error
        return cls(content, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return ProtobufSchema, (self.descriptors, self.name)

    @cached_property
    def descriptor(self) -> Any:
        """Return the descriptor of the message.

        Raises:
            InvalidJob: the descriptors are damaged or incomplete, or have no such message.
        """
        found = package("descriptor_pb2").FileDescriptorSet()
        pool = package("descriptor_pool").DescriptorPool()
        try:
            found.ParseFromString(self.descriptors)
            for file in found.file:
                pool.Add(file)
            return pool.FindMessageTypeByName(self.name)
        except KeyError as error:
            names = [
                f"{file.package}.{message.name}".lstrip(".") for file in found.file for message in file.message_type
            ]
            raise InvalidJob(
                f"the descriptors have no message {self.name!r}, but {', '.join(names)}",
                remedy="give the name with its package, and run protoc with --include_imports",
            ) from error
        except Exception as error:  # other bytes can cause any kind of error
            raise InvalidJob(
                f"the descriptors of {self.name!r} cannot be used: {error}",
                remedy="write them with protoc --include_imports --descriptor_set_out=…",
            ) from error

    @cached_property
    def message(self) -> Any:
        """Return the class of the message."""
        return package("message_factory").GetMessageClass(self.descriptor)

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.descriptor.fields)

    @property
    def index(self) -> tuple[int, ...]:
        """Return the message's place in its file: the numbers of the messages that contain it, then its own number."""
        return self.messages.index(self.name)

    @cached_property
    def messages(self) -> FileMessage:
        """Return the messages of the message's file."""
        return of_descriptor(file_proto(self.descriptor.file))


def file_proto(file: Any) -> Any:
    """Return the `FileDescriptorProto` of a file."""
    found = package("descriptor_pb2").FileDescriptorProto()
    file.CopyToProto(found)
    return found


def _with_imports(file: Any, seen: set[str]) -> Iterator[Any]:
    """Yield a file and its imports, the imports first."""
    if file.name in seen:
        return
    seen.add(file.name)
    for other in file.dependencies:
        yield from _with_imports(other, seen)
    yield file
