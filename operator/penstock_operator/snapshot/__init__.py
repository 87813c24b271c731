"""FlinkSnapshots: taken, verified, retried, disposed of. The same shape as `reconcile`, smaller: look, decide, write, act.

May know: `api`, `resources`, the protocols, and of `reconcile` the facts and what a restore may need. Must not know kopf.
"""
