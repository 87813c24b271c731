"""What a backend knows of a registered state, whatever it keeps its values in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.common.errors import StateNameConflict, StateSchemaIncompatible, StateTypeError
from penstock.state.encoding.keys import KeyCodec
from penstock.state.encoding.schema import ANY, UnknownType, describe, incompatibility, without_names
from penstock.state.encoding.serializers import codec_for
from penstock.state.encoding.tagged import type_name
from penstock.state.snapshot_format.segment import Layout, StateInfo
from penstock.state.ttl.expiry import Lifetime, TtlCodec, reader_codec

if TYPE_CHECKING:
    from penstock.state.descriptors import StateDescriptor
    from penstock.state.encoding.codec import Codec
    from penstock.state.encoding.schema import Schema
    from penstock.state.ttl.expiry import Clock

LAYOUTS: dict[str, Layout] = {
    "value": "value",
    "reducing": "value",
    "aggregating": "value",
    "list": "list",
    "map": "map",
}


@dataclass(frozen=True)
class Registration:
    """A state with its codecs. `codec` encodes cells: values, or pairs (expiry time, value) with a time-to-live."""

    name: str
    operator: str
    info: StateInfo
    codec: Codec
    map_keys: KeyCodec | None
    lifetime: Lifetime | None

    @staticmethod
    def of(descriptor: StateDescriptor, operator: str, clock: Clock) -> Registration:
        """
        Raises:
            StateTypeError: values, or map keys, of the declared type cannot be encoded.
        """
        name = descriptor.name
        codec = codec_for(descriptor.type_info, state=name, operator=operator)
        lifetime = None if descriptor.ttl_config is None else Lifetime(descriptor.ttl_config, clock)
        layout = LAYOUTS[descriptor.kind]
        map_keys, map_key_schema = None, None
        if layout == "map":
            key_type = getattr(descriptor, "key_type_info", None)
            map_keys = KeyCodec(key_type, f"map keys of state {name!r}", operator)
            map_key_schema = key_schema(key_type, map_keys.what, operator)
        return Registration(
            name,
            operator,
            StateInfo(descriptor.kind, layout, codec.schema, lifetime is not None, map_key_schema),
            codec if lifetime is None else TtlCodec(codec),
            map_keys,
            lifetime,
        )

    def check_same(self, other: Registration) -> None:
        """
        Raises:
            StateNameConflict: the name stands for another kind or type already.
        """
        if without_names(_shape(self.info)) != without_names(_shape(other.info)):
            raise StateNameConflict(
                f"state {self.name!r} is registered twice with different types: as {self.info.kind} of "
                f"{self.info.schema}, and as {other.info.kind} of {other.info.schema}",
                remedy="give each state of an operator a name of its own",
                operator=self.operator,
            )

    def reader(self, stored: StateInfo) -> Codec:
        """A codec that reads what a snapshot holds under this name.

        Raises:
            StateSchemaIncompatible: the snapshot's state is of another kind, or its values cannot be read.
        """
        if stored.kind != self.info.kind:
            raise StateSchemaIncompatible(
                f"state {self.name!r} is a {stored.kind} state in the snapshot and a {self.info.kind} state in the program",
                remedy="use a new state name for the new kind",
                operator=self.operator,
            )
        ours, theirs = self.info.map_key_schema, stored.map_key_schema
        if ours is not None and theirs is not None and ANY not in (ours, theirs):
            reason = incompatibility(theirs, ours, "a map key")
            if reason:
                raise StateSchemaIncompatible(
                    f"state {self.name!r} cannot be read as the program declares it: {reason}\n"
                    f"  in the snapshot: {theirs}\n  in the program:  {ours}",
                    remedy="keep the type of the map's keys, or use a new state name",
                    operator=self.operator,
                )
        return reader_codec(self.codec, self.lifetime, stored)

    def is_as_stored(self, stored: StateInfo) -> bool:
        """Whether values are stored now exactly as they were: old and new files may be mixed."""
        return without_names(_shape(stored)) == without_names(_shape(self.info)) and stored.ttl == self.info.ttl


def _shape(info: StateInfo) -> dict[str, Any]:
    return {"kind": info.kind, "schema": info.schema, "map_key": info.map_key_schema}


def key_schema(key_type: Any, what: str = "keys", operator: str = "") -> Schema:
    """The description of keys of a declared type.

    Args:
        what: names the keys in error messages.

    Raises:
        StateTypeError: the type has no encoding, or its values can change.
    """
    annotation = getattr(key_type, "python_type", key_type)
    if annotation is None or annotation is Any or annotation is object:
        return ANY
    try:
        schema = describe(annotation)
        if isinstance(annotation, type) and annotation.__hash__ is None:
            raise TypeError(f"values of {type_name(annotation)} can change")
    except (UnknownType, TypeError, NameError) as error:
        raise StateTypeError(
            f"the {what} are declared with a type that keys cannot have: {error}",
            remedy="use plain values or a tuple of them, or make the class a frozen dataclass, a NamedTuple, or a frozen "
            "pydantic model or msgspec Struct",
            operator=operator,
        ) from None
    return schema
