"""Actions of a bulk request, and the lines that represent them in the request.

An action has the format of `helpers.bulk` in the servers' own Python clients.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

import numpy as np

from penstock.common.errors import RecordFormatError, SinkError
from penstock.connectors.formats.encode import JsonLinesEncoder

Action: TypeAlias = Mapping[str, Any]
"""{"_index": "means", "_id": "A1", "_source": {…}}. Instead of "_source", an action may contain the document's fields directly. "_op_type"
is "index" (the default), "create", "update" or "delete"."""

_OPERATIONS = ("index", "create", "update", "delete")
_ABOUT = ("_index", "_id", "routing", "pipeline", "version", "version_type", "retry_on_conflict", "require_alias")
"""Keys that go into the line before the document."""
_UNDERSCORED = {"_routing": "routing", "_version": "version", "_version_type": "version_type"}
_encode = JsonLinesEncoder().encode


@dataclass(frozen=True)
class Request:
    """One action of a bulk."""

    operation: str
    index: str
    id: str
    """The document's id. If it is empty, the server generates one."""
    lines: bytes
    is_versioned: bool = False

    @property
    def key(self) -> Hashable:
        """Return a value that identifies the document. An action without an id creates a document that no other action writes."""
        return (self.index, self.id) if self.id else id(self)

    @property
    def size(self) -> int:
        return len(self.lines)

    @property
    def replaces(self) -> bool:
        """Return whether the action overwrites all earlier actions of this document."""
        return self.operation in ("index", "delete") and not self.is_versioned

    @property
    def shown(self) -> str:
        return f"document {self.id!r} of index {self.index!r}" if self.id else f"a document of index {self.index!r}"


def requests_of(record: Any, action: Callable[[Any], Any], index: str) -> list[Request]:
    """Return the requests for the actions of a record.

    Raises:
        SinkError: `action` returned something that is not a valid action.
    """
    found = action(record)
    if found is None:
        return []
    return [_request(one, index) for one in ([found] if isinstance(found, Mapping) else found)]


def _request(action: Any, default: str) -> Request:
    if not isinstance(action, Mapping):
        raise _wrong(
            f"a {type(action).__name__} is not an action", action, 'return {"_index": …, "_id": …, "_source": …}'
        )
    fields = {_UNDERSCORED.get(name, name): value for name, value in action.items()}
    operation = fields.pop("_op_type", "index")
    if operation not in _OPERATIONS:
        raise _wrong(f"_op_type={operation!r}", action, f"use one of {', '.join(_OPERATIONS)}")
    has_source = "_source" in fields
    document = fields.pop("_source", None)
    about = {name: _plain(fields.pop(name)) for name in _ABOUT if name in fields}
    about.setdefault("_index", default)
    if not about["_index"]:
        raise _wrong("the action has no _index", action, "add _index to the action, or pass index= to the sink")
    identity = about.pop("_id", None)
    if identity is not None:
        about["_id"] = str(identity)
    elif operation in ("update", "delete"):
        raise _wrong(f"the action {operation} has no _id", action, "add the _id of the document")
    if about.get("_id") == "":
        raise _wrong("the _id is empty", action, "remove _id, or set it to the id of the document")
    if operation == "delete":
        document = None
    elif not has_source:
        document = fields
        if operation == "update" and not fields.keys() & {"doc", "script"}:
            document = {"doc": fields}
    elif fields:
        raise _wrong(
            f"the action has _source and also {', '.join(sorted(map(str, fields)))}",
            action,
            "move all fields of the document into _source",
        )
    try:
        lines = _encode({operation: about}) + (b"" if operation == "delete" else _encode(document))
    except RecordFormatError as error:
        raise SinkError(error.message, remedy=error.remedy) from error
    return Request(operation, str(about["_index"]), about.get("_id", ""), lines, is_versioned="version" in about)


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        value = value.value
    return value.item() if isinstance(value, np.generic) else value


def _wrong(problem: str, action: Any, remedy: str) -> SinkError:
    return SinkError(f"OpenSearch: {problem}: {str(action)[:200]}", remedy=remedy)
