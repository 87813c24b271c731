"""`DataTypes`: the types of Flink's SQL, mapped to the types of streams."""

# ruff: noqa: N802 - the factories have PyFlink's names

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.common.type_info.type_information import DecimalTypeInfo
from penstock.common.typeinfo import RowTypeInfo, TypeInformation, Types

if TYPE_CHECKING:
    from collections.abc import Sequence


class RowField(NamedTuple):
    """A named column. `DataTypes.FIELD` creates it."""

    name: str
    data_type: TypeInformation


class DataTypes:
    """Factories of types. They accept lengths and the precision of times, but do not enforce them. Any column may be
    null.

    >>> DataTypes.DECIMAL(10, 2), DataTypes.ARRAY(DataTypes.INT())
    (DataTypes.DECIMAL(10, 2), BasicArrayTypeInfo(Types.INT()))
    """

    @staticmethod
    def BOOLEAN(nullable: bool = True) -> TypeInformation:
        return Types.BOOLEAN()

    @staticmethod
    def TINYINT(nullable: bool = True) -> TypeInformation:
        return Types.BYTE()

    @staticmethod
    def SMALLINT(nullable: bool = True) -> TypeInformation:
        return Types.SHORT()

    @staticmethod
    def INT(nullable: bool = True) -> TypeInformation:
        return Types.INT()

    @staticmethod
    def BIGINT(nullable: bool = True) -> TypeInformation:
        return Types.LONG()

    @staticmethod
    def FLOAT(nullable: bool = True) -> TypeInformation:
        return Types.FLOAT()

    @staticmethod
    def DOUBLE(nullable: bool = True) -> TypeInformation:
        return Types.DOUBLE()

    @staticmethod
    def DECIMAL(precision: int, scale: int, nullable: bool = True) -> TypeInformation:
        return DecimalTypeInfo(precision, scale)

    @staticmethod
    def CHAR(length: int, nullable: bool = True) -> TypeInformation:
        return Types.STRING()

    @staticmethod
    def VARCHAR(length: int, nullable: bool = True) -> TypeInformation:
        return Types.STRING()

    @staticmethod
    def STRING(nullable: bool = True) -> TypeInformation:
        return Types.STRING()

    @staticmethod
    def BINARY(length: int, nullable: bool = True) -> TypeInformation:
        return Types.PRIMITIVE_ARRAY(Types.BYTE())

    @staticmethod
    def VARBINARY(length: int, nullable: bool = True) -> TypeInformation:
        return Types.PRIMITIVE_ARRAY(Types.BYTE())

    @staticmethod
    def BYTES(nullable: bool = True) -> TypeInformation:
        return Types.PRIMITIVE_ARRAY(Types.BYTE())

    @staticmethod
    def DATE(nullable: bool = True) -> TypeInformation:
        return Types.SQL_DATE()

    @staticmethod
    def TIME(precision: int = 0, nullable: bool = True) -> TypeInformation:
        return Types.SQL_TIME()

    @staticmethod
    def TIMESTAMP(precision: int = 6, nullable: bool = True) -> TypeInformation:
        return Types.SQL_TIMESTAMP()

    @staticmethod
    def ARRAY(element_type: TypeInformation, nullable: bool = True) -> TypeInformation:
        return Types.BASIC_ARRAY(element_type)

    @staticmethod
    def MAP(key_type: TypeInformation, value_type: TypeInformation, nullable: bool = True) -> TypeInformation:
        return Types.MAP(key_type, value_type)

    @staticmethod
    def FIELD(name: str, data_type: TypeInformation, description: str | None = None) -> RowField:
        return RowField(name, data_type)

    @staticmethod
    def ROW(row_fields: Sequence[RowField | tuple[str, TypeInformation]] = (), nullable: bool = True) -> RowTypeInfo:
        fields = [RowField(*field) for field in row_fields]
        return RowTypeInfo([field.data_type for field in fields], [field.name for field in fields])
