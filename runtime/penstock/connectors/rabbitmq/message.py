"""The message that a record becomes, and checks of the message. An error here can still name the record.

If pika cannot encode a message, it closes the connection. If a message's header is too large, the broker closes the connection. In both
cases, the sink would send the message again on every new connection, and the connection would end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.common.errors import RecordFormatError
from penstock.connectors.messages.sink import short_repr
from penstock.connectors.rabbitmq.client import package

Text = str | Callable[[Any], str]
_SHORT = 255
"""Maximum bytes of an AMQP short string."""
_FRAME = 131_072
"""Default frame size in bytes of RabbitMQ and pika."""
_AROUND = 20
"""Number of bytes in a header's frame around the properties: the bytes before them, and the byte that ends the frame."""


class Message(NamedTuple):
    exchange: str
    routing_key: str
    body: bytes
    properties: Any
    """pika's `BasicProperties`."""


def is_short(text: Any) -> bool:
    """Return whether the text is valid as a name or a routing key."""
    try:
        return isinstance(text, str) and len(text.encode()) <= _SHORT
    except UnicodeEncodeError:
        return False


def texts(name: str, text_or_function: Text, records: Sequence[Any]) -> list[str]:
    """Return one text per record.

    Raises:
        RecordFormatError: the function returns something other than a short text.
    """
    if isinstance(text_or_function, str):
        return [text_or_function] * len(records)
    found = list(map(text_or_function, records))
    for text, record in zip(found, records, strict=True):
        if not is_short(text):
            raise RecordFormatError(
                f"{name} is {short_repr(text)} for {short_repr(record)}",
                remedy="make the function return text of at most 255 bytes of UTF-8",
            )
    return found


def encodable(properties_by_name: Mapping[str, Any], record: Any, *, frame: int) -> Any:
    """Return pika's properties.

    Args:
        frame: the maximum bytes of a frame. 0 means RabbitMQ's default.

    Raises:
        RecordFormatError: RabbitMQ does not support such a property.
    """
    make = package().BasicProperties
    try:
        properties = make(**properties_by_name)
        size = sum(map(len, properties.encode()))
    except Exception as error:  # pika's encoder can raise any exception, such as an assertion or struct's errors
        name = next((name for name, value in properties_by_name.items() if _is_wrong(make, name, value)), "")
        raise RecordFormatError(
            f"property {name}={short_repr(properties_by_name.get(name))} of the message for {short_repr(record)} cannot be encoded: {type(error).__name__}",
            remedy="use AMQP's names. Values of correlation_id, message_id, expiration, … are text of at most 255 bytes. priority is 0 "
            "to 255. "
            "timestamp is whole seconds. headers have text, bytes, int, bool, Decimal, datetime, None, and lists and dicts of these. "
            "They have no float and no numpy types",
        ) from None
    most = (frame or _FRAME) - _AROUND
    if size > most:
        raise RecordFormatError(
            f"the properties of the message for {short_repr(record)} take {size:,} bytes",
            remedy=f"RabbitMQ needs them in one frame of {most:,} bytes: move large values into the body, or set_requested_frame_max to "
            f"the broker's frame_max",
        )
    return properties


def _is_wrong(make: Any, name: str, value: Any) -> bool:
    try:
        make(**{name: value}).encode()
    except Exception:
        return True
    return False
