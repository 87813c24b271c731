"""What to do next, and doing it: observe → decide → persist the intent → act.

May know: `api`, `resources`, and the protocols of `kube`, `engine`, `storage`. Must not know kopf.
`observation`, `spec_diff`, `restore`, `stopping`, `steps`, `decide`, `report`, `retention` are pure; `observe` and `act` do I/O;
`loop` joins them.
"""
