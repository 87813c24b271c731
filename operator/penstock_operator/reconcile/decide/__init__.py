"""What to do next for one FlinkJob. Pure: no clock, no network, no cluster.

`next_step` is the whole of it, as a table. The operations of the operator are listed with their steps in `flows`; when each
is begun and given up, and what a step does, is in `operations`; what can be done in `actions`, and what all of them are made
from in `context`.
"""
