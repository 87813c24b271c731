"""The reconcile loop of FlinkSnapshots: take, verify, retry and dispose. It has the structure of `reconcile`, but is
smaller.

A pass observes, decides, writes the status and acts. This package may import `api`, `resources` and the protocols.
From `reconcile` it may import the parts that both loops share, the observations, and the rules for files that a
restore may need. It must not import kopf.
"""
