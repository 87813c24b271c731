"""Formats: the conversion of bytes into records and of records into bytes.

record_format  the interfaces for formats of lines (StreamFormat) and of whole files (BulkFormat); text lines; malformed records
shape          the fields of a record and the Python form that it takes as a row
arrow_types    types of fields as Arrow types
object_batch   records that exist as objects and become columns when an operator asks for columns.
json_lines, csv, parquet      the formats that sources read.
encode, bulk   how sinks write rows and columns
"""
