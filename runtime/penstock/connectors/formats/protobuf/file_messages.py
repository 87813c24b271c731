"""The messages that a file declares, in order. The numbers in the head of a message refer to this order.

A number is a message's place among the messages of its file, or among the messages nested in another message. Maps and groups also
create nested messages. A writer that uses descriptors counts the created messages. A writer that uses the text of the file does not. So
a number may mean one of two messages. When Penstock writes the numbers of a message, it counts in the text.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error
from collections.abc import Sequence
from typing import Any

from penstock.connectors.formats.protobuf.package import package

_TOKEN = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|[A-Za-z_][\w.]*|[{};<]""", re.DOTALL)


class FileMessage:
    """A message with its nested messages. `is_made` is True if a map or a group created it."""

    def __init__(self, name: str, *, is_made: bool = False) -> None:
        self.name = name
        self.is_made = is_made
        self.within: list[FileMessage] = []

    def names(self, index: Sequence[int]) -> set[str]:
        """Return the names of the messages that a list of numbers may mean, counted within this message.

        >>> file = FileMessage("weather")
        >>> file.within = [FileMessage("Point"), FileMessage("Reading")]
        >>> file.names((1,))
        {'weather.Reading'}
        """
        found = (self._at(index, made=made) for made in (True, False))
        return {name for name in found if name is not None}

    def _at(self, index: Sequence[int], *, made: bool) -> str | None:
        path, here = [self.name] if self.name else [], self
        for number in index:
            counted = [one for one in here.within if made or not one.is_made]
            if not 0 <= number < len(counted):
                return None
            here = counted[number]
            path.append(here.name)
        return ".".join(path)

    def index(self, name: str) -> tuple[int, ...]:
        """Return the numbers of a message, counted in the text. `name` includes the package."""
        here, found = self, []
        for part in name.removeprefix(f"{self.name}.").split("."):
            counted = [one for one in here.within if not one.is_made]
            (number,) = (n for n, one in enumerate(counted) if one.name == part)
            here = counted[number]
            found.append(number)
        return tuple(found)


def of_descriptor(file: Any) -> FileMessage:
    """Return the messages of a `FileDescriptorProto`. The name of the root is the package."""
    found = FileMessage(file.package)
    found.within = [_of_message(message, set()) for message in file.message_type]
    return found


def _of_message(message: Any, groups: set[str]) -> FileMessage:
    found = FileMessage(message.name, is_made=message.options.map_entry or message.name in groups)
    inner = {field.type_name.rpartition(".")[2] for field in message.field if field.type == 10}
    found.within = [_of_message(one, inner) for one in message.nested_type]
    return found


def of_text(text: str) -> FileMessage:
    """Return the messages of a file, given as text or as a descriptor in base64. Registries have both forms.

    >>> [one.name for one in of_text('syntax = "proto3"; message A { map<int32, B> b = 1; } message B {}').within]
    ['A', 'B']

    Raises:
        ValueError: the text has neither form.
    """
    if "{" not in text and "=" not in text.rstrip().rstrip("=") and (descriptor := _descriptor(text)) is not None:
        return of_descriptor(descriptor)
    file = FileMessage("")
    around: list[FileMessage | None] = [file]
    tokens = [token for token in _TOKEN.findall(text) if not token.startswith(("//", "/*"))]
    for at, token in enumerate(tokens):
        following = tokens[at + 1 : at + 3]
        here = next(one for one in reversed(around) if one is not None)
        if token == "package" and len(around) == 1 and following[1:] == [";"]:
            file.name = following[0]
        elif token == "map" and following[:1] == ["<"] and around[-1] is not None:
            here.within.append(FileMessage("", is_made=True))
        elif token == "{":
            before = tokens[max(0, at - 2) : at]
            if len(before) == 2 and before[0] in ("message", "group"):
                here.within.append(FileMessage(before[1], is_made=before[0] == "group"))
                around.append(here.within[-1])
            else:
                around.append(None)
        elif token == "}" and len(around) > 1:
            around.pop()
    return file


def _descriptor(text: str) -> Any:
    """Return the descriptor in a base64 text, or None if the text has another form."""
    found = package("descriptor_pb2").FileDescriptorProto()
    try:
        found.ParseFromString(b64decode(text, validate=True))
    except (Error, ValueError, package("message").DecodeError):
        return None
    return found
