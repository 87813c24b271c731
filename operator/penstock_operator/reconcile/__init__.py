"""What to do next, and doing it: observe → decide → persist the intent → act.

May know: `api`, `resources`, and the protocols of `kube`, `engine`, `storage`. Must not know kopf.
`decide` and `report` are pure; `observe` and `act` do I/O; `job_loop` joins them.
"""
