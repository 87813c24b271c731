"""What to do next for one FlinkJob. Pure: no clock, no network, no cluster.

`next_step` is the whole of it, as a table. The operations of the operator with their steps are in `operations`, when each is begun
in `begin`, what a step does in `steps`, what can be done in `actions`, and what all of them are made from in `context`.
"""
