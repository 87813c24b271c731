"""The streams of the DataStream API. Programs import them from `penstock.datastream`.

A stream is a set of edges, which describe how the next operator reads the stream. An operation adds one
`Transformation` and returns the stream of its results. `key_by`, `union`, `rebalance` and similar methods add no
transformation and change only the edges.
"""
