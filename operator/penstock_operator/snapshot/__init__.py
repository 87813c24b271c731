"""FlinkSnapshots: taken, verified, retried, disposed of. The same shape as `reconcile`, smaller: look, decide, write, act.

May know: `api`, `resources`, the protocols, and of `reconcile` what both loops do, what was seen, and what a restore may need. Must not know kopf.
"""
