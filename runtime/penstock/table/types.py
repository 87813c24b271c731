"""`DataTypes`: the types of Flink's SQL, mapped to the types of streams."""

# ruff: noqa: N802 - the factories have PyFlink's names

from __future__ import annotations

import copy
import dataclasses
import datetime
import decimal
import types
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from penstock.common.errors import InvalidJob
from penstock.common.type_info.type_information import DecimalTypeInfo
from penstock.common.typeinfo import RowTypeInfo, TypeInformation, Types

if TYPE_CHECKING:
    from collections.abc import Sequence

_T = TypeVar("_T", bound=TypeInformation)


class RowField(NamedTuple):
    """A named column. `DataTypes.FIELD` creates it."""

    name: str
    data_type: TypeInformation


def _named(info: _T, sql: str, nullable: bool) -> _T:
    """Return the type with its text in SQL."""
    found = copy.copy(info)
    vars(found)["sql"] = sql if nullable else f"{sql} NOT NULL"
    return found


def quoted(name: str) -> str:
    """Return a name as SQL text.

    >>> quoted("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


class DataTypes:
    """Factories of types. They accept lengths and the precision of times, but do not enforce them. Any column may be
    null.

    >>> DataTypes.DECIMAL(10, 2), DataTypes.ARRAY(DataTypes.INT())
    (DataTypes.DECIMAL(10, 2), BasicArrayTypeInfo(Types.INT()))
    """

    @staticmethod
    def BOOLEAN(nullable: bool = True) -> TypeInformation:
        return _named(Types.BOOLEAN(), "BOOLEAN", nullable)

    @staticmethod
    def TINYINT(nullable: bool = True) -> TypeInformation:
        return _named(Types.BYTE(), "TINYINT", nullable)

    @staticmethod
    def SMALLINT(nullable: bool = True) -> TypeInformation:
        return _named(Types.SHORT(), "SMALLINT", nullable)

    @staticmethod
    def INT(nullable: bool = True) -> TypeInformation:
        return _named(Types.INT(), "INT", nullable)

    @staticmethod
    def BIGINT(nullable: bool = True) -> TypeInformation:
        return _named(Types.LONG(), "BIGINT", nullable)

    @staticmethod
    def FLOAT(nullable: bool = True) -> TypeInformation:
        return _named(Types.FLOAT(), "FLOAT", nullable)

    @staticmethod
    def DOUBLE(nullable: bool = True) -> TypeInformation:
        return _named(Types.DOUBLE(), "DOUBLE", nullable)

    @staticmethod
    def DECIMAL(precision: int, scale: int, nullable: bool = True) -> TypeInformation:
        return _named(DecimalTypeInfo(precision, scale), f"DECIMAL({precision}, {scale})", nullable)

    @staticmethod
    def CHAR(length: int, nullable: bool = True) -> TypeInformation:
        return _named(Types.STRING(), f"CHAR({length})", nullable)

    @staticmethod
    def VARCHAR(length: int, nullable: bool = True) -> TypeInformation:
        return _named(Types.STRING(), f"VARCHAR({length})", nullable)

    @staticmethod
    def STRING(nullable: bool = True) -> TypeInformation:
        return _named(Types.STRING(), "STRING", nullable)

    @staticmethod
    def BINARY(length: int, nullable: bool = True) -> TypeInformation:
        return _named(Types.PRIMITIVE_ARRAY(Types.BYTE()), f"BINARY({length})", nullable)

    @staticmethod
    def VARBINARY(length: int, nullable: bool = True) -> TypeInformation:
        return _named(Types.PRIMITIVE_ARRAY(Types.BYTE()), f"VARBINARY({length})", nullable)

    @staticmethod
    def BYTES(nullable: bool = True) -> TypeInformation:
        return _named(Types.PRIMITIVE_ARRAY(Types.BYTE()), "BYTES", nullable)

    @staticmethod
    def DATE(nullable: bool = True) -> TypeInformation:
        return _named(Types.SQL_DATE(), "DATE", nullable)

    @staticmethod
    def TIME(precision: int = 0, nullable: bool = True) -> TypeInformation:
        return _named(Types.SQL_TIME(), f"TIME({precision})", nullable)

    @staticmethod
    def TIMESTAMP(precision: int = 6, nullable: bool = True) -> TypeInformation:
        return _named(Types.SQL_TIMESTAMP(), f"TIMESTAMP({precision})", nullable)

    @staticmethod
    def TIMESTAMP_LTZ(precision: int = 6, nullable: bool = True) -> TypeInformation:
        return _named(Types.INSTANT(), f"TIMESTAMP_LTZ({precision})", nullable)

    TIMESTAMP_WITH_LOCAL_TIME_ZONE = TIMESTAMP_LTZ

    @staticmethod
    def ARRAY(element_type: TypeInformation, nullable: bool = True) -> TypeInformation:
        return _named(Types.BASIC_ARRAY(element_type), f"ARRAY<{sql_type(element_type)}>", nullable)

    @staticmethod
    def MAP(key_type: TypeInformation, value_type: TypeInformation, nullable: bool = True) -> TypeInformation:
        text = f"MAP<{sql_type(key_type)}, {sql_type(value_type)}>"
        return _named(Types.MAP(key_type, value_type), text, nullable)

    @staticmethod
    def MULTISET(element_type: TypeInformation, nullable: bool = True) -> TypeInformation:
        return _named(Types.MAP(element_type, Types.INT()), f"MULTISET<{sql_type(element_type)}>", nullable)

    @staticmethod
    def FIELD(name: str, data_type: TypeInformation, description: str | None = None) -> RowField:
        return RowField(name, data_type)

    @staticmethod
    def ROW(row_fields: Sequence[RowField | tuple[str, TypeInformation]] = (), nullable: bool = True) -> RowTypeInfo:
        fields = [RowField(*field) for field in row_fields]
        info = RowTypeInfo([field.data_type for field in fields], [field.name for field in fields])
        text = ", ".join(f"{quoted(field.name)} {sql_type(field.data_type)}" for field in fields)
        return _named(info, f"ROW<{text}>", nullable)


_TEXTS: list[tuple[TypeInformation, str]] = [
    (Types.BOOLEAN(), "BOOLEAN"),
    (Types.BYTE(), "TINYINT"),
    (Types.SHORT(), "SMALLINT"),
    (Types.INT(), "INT"),
    (Types.LONG(), "BIGINT"),
    (Types.FLOAT(), "FLOAT"),
    (Types.DOUBLE(), "DOUBLE"),
    (Types.STRING(), "STRING"),
    (Types.CHAR(), "CHAR(1)"),
    (Types.BIG_INT(), "DECIMAL(38, 0)"),
    (Types.BIG_DEC(), "DECIMAL(38, 18)"),
    (Types.INSTANT(), "TIMESTAMP_LTZ(6)"),
    (Types.SQL_DATE(), "DATE"),
    (Types.SQL_TIME(), "TIME(3)"),
    (Types.SQL_TIMESTAMP(), "TIMESTAMP(6)"),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), "BYTES"),
]
_ANNOTATIONS: dict[Any, str] = {
    bool: "BOOLEAN",
    int: "BIGINT",
    float: "DOUBLE",
    str: "STRING",
    bytes: "BYTES",
    decimal.Decimal: "DECIMAL(38, 18)",
    datetime.date: "DATE",
    datetime.time: "TIME(3)",
    datetime.datetime: "TIMESTAMP(6)",
    datetime.timedelta: "INTERVAL DAY TO SECOND(3)",
}


def sql_type(type: Any) -> str:
    """Return the text in SQL of a type: a DataType, a type of streams, or the text itself.

    Raises:
        InvalidJob: SQL has no such type.

    >>> sql_type(DataTypes.ROW([("a", DataTypes.TIMESTAMP(3))])), sql_type(Types.LIST(Types.LONG()))
    ('ROW<`a` TIMESTAMP(3)>', 'ARRAY<BIGINT>')
    """
    if isinstance(type, str):
        return type
    if not isinstance(type, TypeInformation):
        return annotated_type(type)
    text = vars(type).get("sql")
    if text is not None:
        return str(text)
    for known, found in _TEXTS:
        if type == known:
            return found
    return _composite(type)


def _composite(info: TypeInformation) -> str:
    from penstock.common.typeinfo import MapTypeInfo, TupleTypeInfo

    if isinstance(info, DecimalTypeInfo):
        return repr(info).removeprefix("DataTypes.")
    if isinstance(info, RowTypeInfo | TupleTypeInfo):
        names = info.get_field_names() if isinstance(info, RowTypeInfo) else None
        fields = [sql_type(field) for field in info.get_field_types()]
        names = names or [f"f{index}" for index in range(len(fields))]
        return f"ROW<{', '.join(f'{quoted(name)} {field}' for name, field in zip(names, fields, strict=True))}>"
    if isinstance(info, MapTypeInfo):
        key, value = info._key()
        return f"MAP<{sql_type(key)}, {sql_type(value)}>"
    element = getattr(info, "element_type", None)
    if element is not None:
        return f"ARRAY<{sql_type(element)}>"
    raise _no_type(info)


def _no_type(found: Any) -> InvalidJob:
    return InvalidJob(
        f"SQL has no type for {found!r}", remedy="declare a type of DataTypes, or a text such as 'ARRAY<INT>'"
    )


def annotated_type(annotation: Any) -> str:
    """Return the text in SQL of the type that an annotation names.

    >>> annotated_type(int), annotated_type(list[str] | None), annotated_type(dict[str, float])
    ('BIGINT', 'ARRAY<STRING>', 'MAP<STRING, DOUBLE>')
    """
    if isinstance(annotation, str | TypeInformation):
        return sql_type(annotation)
    if annotation in _ANNOTATIONS:
        return _ANNOTATIONS[annotation]
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        present = [part for part in parts if part is not type(None)]
        if len(present) == 1:
            return annotated_type(present[0])
    elif origin is list and parts:
        return f"ARRAY<{annotated_type(parts[0])}>"
    elif origin in (dict, Mapping) and len(parts) == 2:
        return f"MAP<{annotated_type(parts[0])}, {annotated_type(parts[1])}>"
    elif origin is tuple and parts and parts[-1] is not Ellipsis:
        return f"ROW<{', '.join(f'f{index} {annotated_type(part)}' for index, part in enumerate(parts))}>"
    elif isinstance(annotation, type) and (dataclasses.is_dataclass(annotation) or hasattr(annotation, "_fields")):
        hints = typing.get_type_hints(annotation)
        return f"ROW<{', '.join(f'{quoted(name)} {annotated_type(hint)}' for name, hint in hints.items())}>"
    raise _no_type(annotation)
