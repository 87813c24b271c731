"""What a record becomes. Whether it can be sent is known here, where there is still a record to name.

A message that cannot be encoded is an error of the connection for pika, and one with too large a header is one for the broker: both would
end every connection that is made to send it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.common.errors import RecordFormatError
from penstock.connectors.rabbitmq.client import package

Text = str | Callable[[Any], str]
_SHORT = 255
"""Bytes of an AMQP short string."""
_FRAME = 131_072
"""What RabbitMQ and pika agree on unless told otherwise."""
_AROUND = 20
"""Bytes of a header's frame before the properties, and the one that ends it."""


class Message(NamedTuple):
    exchange: str
    routing_key: str
    body: bytes
    properties: Any
    """pika's `BasicProperties`."""


def is_short(text: Any) -> bool:
    """Whether this can be a name or a routing key."""
    try:
        return isinstance(text, str) and len(text.encode()) <= _SHORT
    except UnicodeEncodeError:
        return False


def texts(what: str, given: Text, records: Sequence[Any]) -> list[str]:
    """One for each record.

    Raises:
        RecordFormatError: the function gives something else than a short text.
    """
    if isinstance(given, str):
        return [given] * len(records)
    found = list(map(given, records))
    for text, record in zip(found, records, strict=True):
        if not is_short(text):
            raise RecordFormatError(
                f"{what} is {_shown(text)} for {_shown(record)}",
                remedy="let the function give text of at most 255 bytes of UTF-8",
            )
    return found


def checked_bodies(bodies: Sequence[Any], records: Sequence[Any]) -> list[bytes]:
    """
    Raises:
        RecordFormatError: one is not of bytes.
    """
    for body, record in zip(bodies, records, strict=True):
        if not isinstance(body, bytes):
            raise RecordFormatError(
                f"the serializer gives {_shown(body)} for {_shown(record)}",
                remedy="let it give bytes, and filter out before the sink what is to be no message",
            )
    return list(bodies)


def encodable(given: Mapping[str, Any], record: Any, *, frame: int) -> Any:
    """pika's properties.

    Args:
        frame: the most bytes of a frame; 0: what RabbitMQ says unless configured.

    Raises:
        RecordFormatError: RabbitMQ has none like that.
    """
    make = package().BasicProperties
    try:
        properties = make(**given)
        size = sum(map(len, properties.encode()))
    except Exception as error:  # an assertion, struct's, pika's: whatever it stumbles over
        name = next((name for name, value in given.items() if _is_wrong(make, name, value)), "")
        raise RecordFormatError(
            f"property {name}={_shown(given.get(name))} of the message for {_shown(record)} cannot be encoded: {type(error).__name__}",
            remedy="names are AMQP's; correlation_id, message_id, expiration, … are text of at most 255 bytes, priority is 0 to 255, timestamp whole seconds; "
            "headers have text, bytes, int, bool, Decimal, datetime, None, and lists and dicts of these: no float, nothing of numpy's",
        ) from None
    most = (frame or _FRAME) - _AROUND
    if size > most:
        raise RecordFormatError(
            f"the properties of the message for {_shown(record)} take {size:,} bytes",
            remedy=f"RabbitMQ takes them in one frame, {most:,} bytes: move what is large into the body, or set_requested_frame_max with the broker's frame_max",
        )
    return properties


def _is_wrong(make: Any, name: str, value: Any) -> bool:
    try:
        make(**{name: value}).encode()
    except Exception:
        return True
    return False


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
