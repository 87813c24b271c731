"""The streams of the DataStream API. Programs import them from `penstock.datastream`.

A stream is a set of edges: how the next operator would read it. Every operation adds one `Transformation` and gives a
stream of its result; `key_by`, `union`, `rebalance` and the like add nothing and only change the edges.
"""
