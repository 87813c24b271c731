"""The nodes of a plan as functions of streams.

A row is a tuple. A stream of changes has pairs of a row kind and a row. The kinds are Flink's numbers, as in `RowKind`.
"""
