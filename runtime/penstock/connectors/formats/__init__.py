"""Formats: how bytes become records and records bytes.

record_format  what a format is: of lines (StreamFormat) or of whole files (BulkFormat); lines of text; where malformed records go
shape          the fields of a record and the Python form it takes as a row
arrow_types    types of fields as Arrow types
object_batch   records that exist as objects and become columns when somebody asks for columns
json_lines, csv, parquet      the formats that are read
encode, bulk   how sinks write rows and columns
"""
