"""`DataTypes`, with which PyFlink programs declare the columns of CSV and Parquet files. Tables and SQL are not
supported.

>>> from penstock.table import DataTypes
>>> DataTypes.ROW([DataTypes.FIELD("station", DataTypes.STRING()), DataTypes.FIELD("celsius", DataTypes.DOUBLE())])
RowTypeInfo([Types.STRING(), Types.DOUBLE()], ('station', 'celsius'))
"""

from penstock.table.types import DataTypes

__all__ = ["DataTypes"]
