"""Decimals in Debezium's JSON. `decimal.handling.mode` decides the form: text, number, or base64 of the unscaled integer."""

from __future__ import annotations

import base64
import binascii
import re
from decimal import Decimal
from typing import Any

from penstock.common.errors import InvalidJob
from penstock.common.type_info.type_information import DecimalTypeInfo
from penstock.common.typeinfo import BasicType, BasicTypeInfo
from penstock.connectors.formats.arrow_types import without_none
from penstock.connectors.formats.record_format import MalformedBlock
from penstock.connectors.formats.shape import RecordShape

_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_REMEDY = "Set decimal.handling.mode=string in the connector"


class DecimalTexts:
    """The decimal fields of a table.

    Args:
        mode: the connector's `decimal.handling.mode`; empty if the program does not set it.

    Raises:
        InvalidJob: the mode is unknown, or it is "precise" and a decimal field declares no scale.
    """

    def __init__(self, shape: RecordShape, mode: str) -> None:
        if mode not in ("", "string", "double", "precise"):
            raise InvalidJob(
                f"decimal_handling_mode={mode!r} is not a valid choice", remedy="write 'string', 'double' or 'precise'"
            )
        self._mode = mode
        self._types = {field.name: field.type for field in shape.fields if _is_decimal(field.type)}
        without = [name for name, kind in self._types.items() if not isinstance(kind, DecimalTypeInfo)]
        if mode == "precise" and without:
            raise InvalidJob(
                f"decimal_handling_mode='precise' needs the scale of {', '.join(map(repr, without))}",
                remedy="declare them as DataTypes.DECIMAL(precision, scale)",
            )

    def plain(self, image: Any) -> Any:
        """Return the image of a row with its decimals as text or numbers.

        Raises:
            MalformedBlock: a decimal is base64 or could be base64, but the mode is not known.
        """
        if not self._types or not isinstance(image, dict) or self._mode in ("string", "double"):
            return image
        texts = {name: image[name] for name in self._types if isinstance(image.get(name), str)}
        if self._mode == "precise":
            return {**image, **{name: str(self._decoded(name, text)) for name, text in texts.items()}}
        for name, text in texts.items():
            if not _BASE64.fullmatch(text) or not text:
                continue
            if not _NUMBER.fullmatch(text):
                raise MalformedBlock(
                    f"the decimal {name!r} is {text!r}, which is base64 as written with decimal.handling.mode=precise. {_REMEDY}, or create "
                    "the format with decimal_handling_mode='precise'"
                )
            raise MalformedBlock(
                f"the decimal {name!r} is {text!r}, which has different values with decimal.handling.mode=string and precise. "
                "Create the format with decimal_handling_mode='string' or 'precise'"
            )
        return image

    def _decoded(self, name: str, text: str) -> Decimal:
        try:
            digits = int.from_bytes(base64.b64decode(text, validate=True), "big", signed=True)
        except binascii.Error:
            raise MalformedBlock(
                f"the decimal {name!r} is {text!r}, which is not base64: decimal.handling.mode of the connector is not 'precise'"
            ) from None
        return Decimal((0 if digits >= 0 else 1, tuple(map(int, str(abs(digits)))), -self._types[name].scale))


def _is_decimal(declared: Any) -> bool:
    if isinstance(declared, BasicTypeInfo):
        return declared.basic_type is BasicType.BIG_DEC
    return without_none(declared) is Decimal
