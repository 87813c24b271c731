"""`TypeInformation`, the base of all type descriptions, and the types of single values.

Programs import the names from `penstock.common.typeinfo`, whose docstring gives the overview.
"""

# ruff: noqa: N802 - the factories have PyFlink's names

from __future__ import annotations

import datetime
import decimal
from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, Self

from penstock.common.time import Instant


class TypeInformation(ABC):
    """The type of a stream's or state's values. Equal types are equal objects with equal hashes."""

    is_inferred = False
    """Whether the type was inferred from annotations or values. PyFlink infers nothing and would have pickled the values.

    The text of such values is therefore Python's (`flink_text`).
    """

    @property
    @abstractmethod
    def python_type(self) -> Any:
        """The annotation with which `msgspec` encodes and decodes the storable form, for example `tuple[int, str]`."""

    @property
    def is_storable(self) -> bool:
        """Whether values are encoded unchanged.

        If False, `to_storable` converts them before encoding, and `from_storable` converts them after decoding.
        """
        return True

    def to_storable(self, value: Any) -> Any:
        return value

    def from_storable(self, value: Any) -> Any:
        return value

    def accepts(self, value: Any) -> bool:
        """Return whether the value, after `convert`, belongs to this type. None belongs to every type."""
        return value is None or self._accepts(value)

    @abstractmethod
    def _accepts(self, value: Any) -> bool: ...

    def convert(self, value: Any) -> Any:
        """Return the value in the stream's form: a Row type converts tuples to Rows, and a tuple type converts lists."""
        return value

    def bridged_to(self, conversion_cls: str) -> Self:
        """Return this type. In PyFlink, this method sets the values' class in the JVM, which does not exist here."""
        return self

    def need_conversion(self) -> bool:
        """Return whether PyFlink's internal form (days, microseconds, tuples) differs from the Python value."""
        return False

    def to_internal_type(self, obj: Any) -> Any:
        return obj

    def from_internal_type(self, obj: Any) -> Any:
        return obj

    def _key(self) -> tuple[object, ...]:
        return ()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((type(self).__name__, str(self._key())))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._key()))})"


class BasicType(Enum):
    STRING = "String"
    BYTE = "Byte"
    BOOLEAN = "Boolean"
    SHORT = "Short"
    INT = "Integer"
    LONG = "Long"
    FLOAT = "Float"
    DOUBLE = "Double"
    CHAR = "Char"
    BIG_INT = "BigInteger"
    BIG_DEC = "BigDecimal"
    INSTANT = "Instant"


_BASIC_PYTHON_TYPES: dict[BasicType, type] = {
    BasicType.STRING: str,
    BasicType.BYTE: int,
    BasicType.BOOLEAN: bool,
    BasicType.SHORT: int,
    BasicType.INT: int,
    BasicType.LONG: int,
    BasicType.FLOAT: float,
    BasicType.DOUBLE: float,
    BasicType.CHAR: str,
    BasicType.BIG_INT: int,
    BasicType.BIG_DEC: decimal.Decimal,
    BasicType.INSTANT: Instant,
}


class BasicTypeInfo(TypeInformation):
    """A number, string, boolean, decimal or instant.

    >>> BasicTypeInfo.LONG_TYPE_INFO().python_type, BasicTypeInfo.BIG_DEC_TYPE_INFO().accepts(1.5)
    (<class 'int'>, False)
    """

    def __init__(self, basic_type: BasicType) -> None:
        self._basic_type = basic_type

    @property
    def basic_type(self) -> BasicType:
        return self._basic_type

    @property
    def python_type(self) -> type:
        return _BASIC_PYTHON_TYPES[self._basic_type]

    def _accepts(self, value: Any) -> bool:
        expected = self.python_type
        if expected is bool:
            return isinstance(value, bool)
        if expected is float:
            return isinstance(value, float | int) and not isinstance(value, bool)
        if expected is int:
            return isinstance(value, int) and not isinstance(value, bool)
        return isinstance(value, expected)

    def _key(self) -> tuple[object, ...]:
        return (self._basic_type,)

    def __repr__(self) -> str:
        return f"Types.{self._basic_type.name}()"

    def __str__(self) -> str:
        return self._basic_type.value

    @staticmethod
    def STRING_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.STRING)

    @staticmethod
    def BOOLEAN_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.BOOLEAN)

    @staticmethod
    def BYTE_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.BYTE)

    @staticmethod
    def SHORT_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.SHORT)

    @staticmethod
    def INT_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.INT)

    @staticmethod
    def LONG_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.LONG)

    @staticmethod
    def FLOAT_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.FLOAT)

    @staticmethod
    def DOUBLE_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.DOUBLE)

    @staticmethod
    def CHAR_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.CHAR)

    @staticmethod
    def BIG_INT_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.BIG_INT)

    @staticmethod
    def BIG_DEC_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.BIG_DEC)

    @staticmethod
    def INSTANT_TYPE_INFO() -> BasicTypeInfo:
        return InstantTypeInfo(BasicType.INSTANT)


class DecimalTypeInfo(BasicTypeInfo):
    """A decimal of a column with a total number of digits and a number of digits after the point.

    >>> DecimalTypeInfo(4, 1).convert(decimal.Decimal("1.25"))
    Decimal('1.3')
    """

    def __init__(self, precision: int, scale: int) -> None:
        super().__init__(BasicType.BIG_DEC)
        self.precision = precision
        self.scale = scale
        self._unit = decimal.Decimal(1).scaleb(-scale)

    def convert(self, value: Any) -> Any:
        """Round to the scale, halves away from zero, as Java does."""
        if value is None:
            return None
        with decimal.localcontext(prec=max(self.precision + 1, 28)):
            return decimal.Decimal(value).quantize(self._unit, decimal.ROUND_HALF_UP)

    def _key(self) -> tuple[object, ...]:
        return (self.precision, self.scale)

    def __repr__(self) -> str:
        return f"DataTypes.DECIMAL({self.precision}, {self.scale})"


class InstantTypeInfo(BasicTypeInfo):
    """The type of `Instant`. The internal form is milliseconds since the epoch."""

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, obj: Instant) -> int:
        return obj.to_epoch_milli()

    def from_internal_type(self, obj: int) -> Instant:
        return Instant.of_epoch_milli(obj)


class DateTypeInfo(TypeInformation):
    """The type of `datetime.date`. The internal form is days since the epoch.

    >>> DateTypeInfo().to_internal_type(datetime.date(1970, 1, 2))
    1
    """

    EPOCH_ORDINAL = datetime.date(1970, 1, 1).toordinal()

    @property
    def python_type(self) -> type:
        return datetime.date

    def _accepts(self, value: Any) -> bool:
        return isinstance(value, datetime.date) and not isinstance(value, datetime.datetime)

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, d: datetime.date | None) -> int | None:
        return None if d is None else d.toordinal() - self.EPOCH_ORDINAL

    def from_internal_type(self, v: int | None) -> datetime.date | None:
        return None if v is None else datetime.date.fromordinal(v + self.EPOCH_ORDINAL)

    def __repr__(self) -> str:
        return "Types.SQL_DATE()"


class TimeTypeInfo(TypeInformation):
    """The type of `datetime.time`. The internal form is microseconds since midnight."""

    EPOCH_ORDINAL = DateTypeInfo.EPOCH_ORDINAL

    @property
    def python_type(self) -> type:
        return datetime.time

    def _accepts(self, value: Any) -> bool:
        return isinstance(value, datetime.time)

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, t: datetime.time | None) -> int | None:
        if t is None:
            return None
        return ((t.hour * 60 + t.minute) * 60 + t.second) * 1_000_000 + t.microsecond

    def from_internal_type(self, t: int | None) -> datetime.time | None:
        if t is None:
            return None
        seconds, microsecond = divmod(t, 1_000_000)
        minutes, second = divmod(seconds, 60)
        hour, minute = divmod(minutes, 60)
        return datetime.time(hour, minute, second, microsecond)

    def __repr__(self) -> str:
        return "Types.SQL_TIME()"


class TimestampTypeInfo(TypeInformation):
    """The type of `datetime.datetime`. The internal form is microseconds since the epoch. A value without a time zone is UTC."""

    _EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

    @property
    def python_type(self) -> type:
        return datetime.datetime

    def _accepts(self, value: Any) -> bool:
        return isinstance(value, datetime.datetime)

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, dt: datetime.datetime | None) -> int | None:
        if dt is None:
            return None
        aware = dt if dt.tzinfo is not None else dt.replace(tzinfo=datetime.UTC)
        return (aware - self._EPOCH) // datetime.timedelta(microseconds=1)

    def from_internal_type(self, ts: int | None) -> datetime.datetime | None:
        if ts is None:
            return None
        return (self._EPOCH + datetime.timedelta(microseconds=ts)).replace(tzinfo=None)

    def __repr__(self) -> str:
        return "Types.SQL_TIMESTAMP()"


class SqlTimeTypeInfo(TypeInformation):
    """Factory of the types of SQL's dates and times."""

    @staticmethod
    def DATE() -> TypeInformation:
        return DateTypeInfo()

    @staticmethod
    def TIME() -> TypeInformation:
        return TimeTypeInfo()

    @staticmethod
    def TIMESTAMP() -> TypeInformation:
        return TimestampTypeInfo()


class LocalTimeTypeInfo(TypeInformation):
    """A date, time or date and time without a time zone."""

    class TimeType(Enum):
        LOCAL_DATE = "date"
        LOCAL_TIME = "time"
        LOCAL_DATE_TIME = "datetime"

    def __init__(self, time_type: TimeType) -> None:
        self._time_type = time_type

    @property
    def python_type(self) -> type:
        python_type: type = getattr(datetime, self._time_type.value)
        return python_type

    def _accepts(self, value: Any) -> bool:
        return isinstance(value, self.python_type)

    def _key(self) -> tuple[object, ...]:
        return (self._time_type,)


class PickledBytesTypeInfo(TypeInformation):
    """The type of any value. PyFlink pickles such values. Here only the name exists, for PyFlink programs.

    A value is encoded by its Python class when it is stored. If this is not possible, an error names the value.
    """

    @property
    def python_type(self) -> Any:
        return Any

    def _accepts(self, value: Any) -> bool:
        return True

    def __repr__(self) -> str:
        return "Types.PICKLED_BYTE_ARRAY()"
