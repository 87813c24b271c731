"""The description of a Protobuf message by the numbers of its fields, and the compatibility of two descriptions.

The rules are in "Updating A Message Type" of Protobuf's language guide. Some changes that the guide allows may cut off values, such as
int64 to int32. These changes are refused here.
"""

from __future__ import annotations

from typing import Any

_WIDER = {
    "int32": ("int64",),
    "uint32": ("uint64", "int64"),
    "sint32": ("sint64",),
    "bool": ("int32", "int64", "uint32", "uint64"),
    "enum": ("int32", "int64"),
    "string": ("bytes",),
}
KINDS = (
    *(
        "",
        "double",
        "float",
        "int64",
        "uint64",
        "int32",
        "fixed64",
        "fixed32",
        "bool",
        "string",
        "group",
        "message",
        "bytes",
    ),
    *("uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64"),
)


def describe_message(descriptor: Any) -> dict[str, Any]:
    """Return a message's description as JSON: its fields, the fields of nested messages, and the numbers of enumerations."""
    messages: dict[str, Any] = {}
    enums: dict[str, Any] = {}
    todo = [descriptor]
    while todo:
        message = todo.pop()
        if message.full_name in messages:
            continue
        fields = messages[message.full_name] = []
        for field in sorted(message.fields, key=lambda one: one.number):
            entry: dict[str, Any] = {"number": field.number, "name": field.name, "kind": KINDS[field.type]}
            if field.is_repeated:
                entry["repeated"] = True
            if field.is_required:
                entry["required"] = True
            if field.message_type is not None:
                entry["of"] = field.message_type.full_name
                todo.append(field.message_type)
            if field.enum_type is not None:
                entry["of"] = field.enum_type.full_name
                enums[field.enum_type.full_name] = sorted({value.number for value in field.enum_type.values})
            fields.append(entry)
    return {"type": "protobuf", "name": descriptor.full_name, "messages": messages, "enums": enums}


def protobuf_incompatibility(old: dict[str, Any], new: dict[str, Any], at: str) -> str:
    """Return why two descriptions are incompatible, or an empty text.

    >>> def described(**field):
    ...     return {"name": "R", "messages": {"R": [{"number": 1, "name": "id", **field}]}, "enums": {}}
    >>> protobuf_incompatibility(described(kind="int32"), described(kind="int64"), "the value")
    ''
    >>> protobuf_incompatibility(described(kind="int64"), described(kind="string"), "the value")
    "field 1 ('id') of the value was int64 and is string"
    """
    return _differ(old, new, old["name"], new["name"], at, set())


def _differ(old: dict[str, Any], new: dict[str, Any], was: str, now: str, at: str, seen: set[tuple[str, str]]) -> str:
    if (was, now) in seen:
        return ""
    seen.add((was, now))
    before = {field["number"]: field for field in old["messages"][was]}
    for field in new["messages"][now]:
        named = f"field {field['number']} ({field['name']!r}) of {at}"
        former = before.get(field["number"])
        if former is None:
            if field.get("required"):
                return f"{named} is new and required"
            continue
        reason = _field_differs(old, new, former, field, named)
        if not reason and former["kind"] == field["kind"] in ("message", "group"):
            reason = _differ(old, new, former["of"], field["of"], named, seen)
        if reason:
            return reason
    return ""


def _field_differs(
    old: dict[str, Any], new: dict[str, Any], former: dict[str, Any], field: dict[str, Any], named: str
) -> str:
    was, now = former["kind"], field["kind"]
    if was != now and now not in _WIDER.get(was, ()):
        return f"{named} was {was} and is {now}"
    if field.get("required") and not former.get("required"):
        return f"{named} was not required and is"
    if former.get("repeated") and not field.get("repeated"):
        return f"{named} was repeated and is not"
    if field.get("repeated") and not former.get("repeated") and "of" in former and was == "message":
        return f"{named} was not repeated and is"
    if was == now == "enum":
        gone = [number for number in old["enums"][former["of"]] if number not in new["enums"][field["of"]]]
        return f"{named} can no longer be {', '.join(map(str, gone))}" if gone else ""
    return ""
