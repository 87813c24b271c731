"""The data of a registered state that is the same in every backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.common.errors import StateNameConflict, StateSchemaIncompatible, StateTypeError
from penstock.state.decoding import decoding
from penstock.state.encoding.keys import KeyCodec
from penstock.state.encoding.schema import ANY, UnknownType, describe, incompatibility, without_names
from penstock.state.encoding.serializers import codec_for
from penstock.state.encoding.tagged import type_name
from penstock.state.owners import FUNCTION, state_name_conflict
from penstock.state.snapshot_format.segment import Layout, StateInfo
from penstock.state.timers.timer_table import TIMER_TABLES
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
    owner: str = FUNCTION

    @staticmethod
    def of(descriptor: StateDescriptor, operator: str, clock: Clock, owner: str = FUNCTION) -> Registration:
        """Create the registration of a descriptor.

        Raises:
            StateTypeError: values, or map keys, of the declared type cannot be encoded.
            StateNameConflict: the name belongs to a table of timers.
        """
        name = descriptor.name
        if name in TIMER_TABLES:
            raise state_name_conflict(f"state {name!r}", "timers", operator)
        codec = codec_for(descriptor.type_info, state=name, operator=operator)
        lifetime = None if descriptor.ttl_config is None else Lifetime(descriptor.ttl_config, clock)
        layout = LAYOUTS[descriptor.kind]
        map_keys, map_key_schema = None, None
        if layout == "map":
            key_type = getattr(descriptor, "key_type_info", None)
            map_keys = KeyCodec(key_type, f"map keys of state {name!r}", operator)
            map_key_schema = key_schema(key_type, map_keys.name, operator)
        return Registration(
            name,
            operator,
            StateInfo(
                descriptor.kind,
                layout,
                codec.schema,
                lifetime is not None,
                map_key_schema,
                None if lifetime is None else lifetime.config.ttl_ms,
            ),
            codec if lifetime is None else TtlCodec(codec),
            map_keys,
            lifetime,
            owner,
        )

    def check_same(self, other: Registration) -> None:
        """Check that a second registration of the state agrees with this registration.

        Raises:
            StateNameConflict: the name already has another kind or type, or belongs to another owner.
        """
        if self.owner != other.owner:
            raise state_name_conflict(f"state {self.name!r}", "records and results", self.operator)
        if without_names(_shape(self.info)) != without_names(_shape(other.info)):
            raise StateNameConflict(
                f"state {self.name!r} is registered twice with different types: as {self.info.kind} of "
                f"{self.info.schema}, and as {other.info.kind} of {other.info.schema}",
                remedy="use another name for one of the states",
                operator=self.operator,
            )

    def reader(self, stored: StateInfo) -> Codec:
        """Return a codec that reads a snapshot's values of this state.

        Raises:
            StateSchemaIncompatible: the snapshot's state has another kind, or its values cannot be read.
        """
        if stored.kind != self.info.kind:
            raise StateSchemaIncompatible(
                f"state {self.name!r} is a {stored.kind} state in the snapshot and a {self.info.kind} state in the program",
                remedy="use a new state name for the new kind",
                operator=self.operator,
            )
        with decoding(f"the schema of state {self.name!r}", operator=self.operator):
            return self._reader(stored)

    def _reader(self, stored: StateInfo) -> Codec:
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

    def is_stored_encoding(self, stored: StateInfo) -> bool:
        """Return whether values have exactly their stored form, so that old and new files may be mixed."""
        return have_same_encoding(stored, self.info) and stored.ttl_ms in (None, self.info.ttl_ms)


def have_same_encoding(one: StateInfo, other: StateInfo) -> bool:
    """Return whether cells of both states have the same bytes and the same meaning. The names of classes do not matter.

    An older version did not record the length of a time-to-live. Its cells are compatible with any length.
    """
    has_same_length = one.ttl_ms == other.ttl_ms or None in (one.ttl_ms, other.ttl_ms)
    return one.ttl == other.ttl and has_same_length and without_names(_shape(one)) == without_names(_shape(other))


def _shape(info: StateInfo) -> dict[str, Any]:
    return {"kind": info.kind, "schema": info.schema, "map_key": info.map_key_schema}


def key_schema(key_type: Any, name: str = "keys", operator: str = "") -> Schema:
    """Return the description of keys of a declared type.

    Args:
        name: name of the keys in error messages.

    Raises:
        StateTypeError: the type has no encoding, or its values are mutable.
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
            f"the {name} are declared with a type that keys cannot have: {error}",
            remedy="use plain values or a tuple of them, or make the class a frozen dataclass, a NamedTuple, or a frozen "
            "pydantic model or msgspec Struct",
            operator=operator,
        ) from None
    return schema
