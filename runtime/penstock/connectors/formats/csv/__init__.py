"""CSV: finding the records of a text, and converting them to columns."""

from penstock.connectors.formats.csv.dialect import CsvDialect
from penstock.connectors.formats.csv.format import CsvFormat

__all__ = ["CsvDialect", "CsvFormat"]
