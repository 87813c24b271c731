"""The text of a `.proto` file from its descriptor (proto2, proto3 and editions). Registries store and compare schemas in this form.

The text omits everything that does not concern messages: services, comments, and options that are extensions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

_SCALARS = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "fixed64", 7: "fixed32", 8: "bool", 9: "string", 12: "bytes", 13: "uint32",
    15: "sfixed32", 16: "sfixed64", 17: "sint32", 18: "sint64",
}  # fmt: skip
_STRING, _GROUP, _BYTES = 9, 10, 12
_REQUIRED, _REPEATED = 2, 3
_LAST = 536_870_912
"""The number after the greatest possible field number."""


def proto_text(file: Any) -> str:
    """Return the text of a file.

    Args:
        file: a `FileDescriptorProto`.
    """
    return "\n".join(_File(file).lines()) + "\n"


class _File:
    def __init__(self, file: Any) -> None:
        self._file = file
        self._syntax = file.syntax or "proto2"

    def lines(self) -> Iterator[str]:
        file = self._file
        if self._syntax == "editions":
            name = file.DESCRIPTOR.fields_by_name["edition"].enum_type.values_by_number[file.edition].name
            yield f'edition = "{name.removeprefix("EDITION_")}";'
        else:
            yield f'syntax = "{self._syntax}";'
        if file.package:
            yield f"package {file.package};"
        for number, name in enumerate(file.dependency):
            how = "public " if number in file.public_dependency else "weak " if number in file.weak_dependency else ""
            yield f"import {how}{_quoted(name)};"
        yield from (f"option {option};" for option in _options(file.options))
        for enum in file.enum_type:
            yield from self._enum(enum)
        for message in file.message_type:
            yield from self._block(f"message {message.name}", self._message(message))
        yield from self._extensions(file.extension, [])

    def _block(self, head: str, lines: Iterator[str]) -> Iterator[str]:
        yield f"{head} {{"
        yield from (f"  {line}" for line in lines)
        yield "}"

    def _message(self, message: Any) -> Iterator[str]:
        yield from (f"option {option};" for option in _options(message.options))
        for enum in message.enum_type:
            yield from self._enum(enum)
        groups = {field.type_name.rpartition(".")[2] for field in message.field if field.type == _GROUP}
        for inner in message.nested_type:
            if not inner.options.map_entry and inner.name not in groups:
                yield from self._block(f"message {inner.name}", self._message(inner))
        done = set()
        for field in message.field:
            if not field.HasField("oneof_index") or field.proto3_optional:
                yield from self._field(field, message.nested_type)
            elif field.oneof_index not in done:
                done.add(field.oneof_index)
                yield from self._block(
                    f"oneof {message.oneof_decl[field.oneof_index].name}", self._oneof(message, field.oneof_index)
                )
        for some in message.extension_range:
            yield f"extensions {_range(some.start, some.end - 1, _LAST - 1)};"
        yield from self._extensions(message.extension, message.nested_type)
        yield from self._reserved(message, [(some.start, some.end - 1) for some in message.reserved_range], _LAST - 1)

    def _oneof(self, message: Any, index: int) -> Iterator[str]:
        yield from (f"option {option};" for option in _options(message.oneof_decl[index].options))
        for field in message.field:
            if field.HasField("oneof_index") and field.oneof_index == index:
                yield from self._field(field, message.nested_type, labelled=False)

    def _extensions(self, fields: Any, nested: Any) -> Iterator[str]:
        for field in fields:
            yield from self._block(f"extend {field.extendee}", self._field(field, nested))

    def _field(self, field: Any, nested: Any, *, labelled: bool = True) -> Iterator[str]:
        inner = next((one for one in nested if one.name == field.type_name.rpartition(".")[2]), None)
        if inner is not None and inner.options.map_entry:
            key, value = (_type(part) for part in inner.field)
            yield f"map<{key}, {value}> {field.name} = {field.number}{self._bracketed_options(field)};"
            return
        label = self._label(field) if labelled else ""
        if field.type == _GROUP and inner is not None:
            head = f"{label}group {inner.name} = {field.number}{self._bracketed_options(field)}"
            yield from self._block(head, self._message(inner))
            return
        yield f"{label}{_type(field)} {field.name} = {field.number}{self._bracketed_options(field)};"

    def _label(self, field: Any) -> str:
        if field.label == _REPEATED:
            return "repeated "
        if self._syntax == "proto2":
            return "required " if field.label == _REQUIRED else "optional "
        return "optional " if field.proto3_optional else ""

    def _bracketed_options(self, field: Any) -> str:
        """Return the options of a field in brackets, or an empty text."""
        options = list(_options(field.options))
        if field.HasField("default_value"):
            value = field.default_value
            if field.type == _STRING:
                value = _quoted(value)
            elif field.type == _BYTES:
                value = f'"{value}"'  # the descriptor already escapes it
            options.insert(0, f"default = {value}")
        if field.HasField("json_name") and field.json_name != _camel(field.name):
            options.append(f"json_name = {_quoted(field.json_name)}")
        return f" [{', '.join(options)}]" if options else ""

    def _enum(self, enum: Any) -> Iterator[str]:
        return self._block(f"enum {enum.name}", self._values(enum))

    def _values(self, enum: Any) -> Iterator[str]:
        yield from (f"option {option};" for option in _options(enum.options))
        for value in enum.value:
            options = ", ".join(_options(value.options))
            yield f"{value.name} = {value.number}{f' [{options}]' if options else ''};"
        yield from self._reserved(enum, [(some.start, some.end) for some in enum.reserved_range], 2**31 - 1)

    def _reserved(self, of: Any, ranges: list[tuple[int, int]], last: int) -> Iterator[str]:
        if ranges:
            yield f"reserved {', '.join(_range(begin, end, last) for begin, end in ranges)};"
        if of.reserved_name:
            names = of.reserved_name if self._syntax == "editions" else map(_quoted, of.reserved_name)
            yield f"reserved {', '.join(names)};"


def _type(field: Any) -> str:
    return _SCALARS.get(field.type) or field.type_name


def _options(options: Any) -> Iterator[str]:
    for field, value in options.ListFields():
        if field.is_extension or field.name in ("map_entry", "uninterpreted_option"):
            continue
        if field.message_type is not None:
            if not field.is_repeated:
                yield from (f"{field.name}.{option}" for option in _options(value))
            continue
        for one in value if field.is_repeated else [value]:
            yield f"{field.name} = {_constant(field, one)}"


def _constant(field: Any, value: Any) -> str:
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    return str(value).lower() if isinstance(value, bool) else _quoted(value) if isinstance(value, str) else str(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _range(begin: int, end: int, last: int) -> str:
    return str(begin) if begin == end else f"{begin} to {'max' if end == last else end}"


def _camel(name: str) -> str:
    """Return a field's name in JSON.

    >>> _camel("at_ms")
    'atMs'
    """
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)
