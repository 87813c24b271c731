"""The next step for one FlinkJob, as pure functions: no clock, no network, no cluster.

`next_step` has the whole decision as a table. `flows` lists the operations of the operator with their steps.
`operations` defines when an operation starts and when it is given up, and what each step does. `actions` has the
possible actions, and `context` the input of all decisions.
"""
