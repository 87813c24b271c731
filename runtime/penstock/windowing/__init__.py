"""Windows, window assigners, triggers and evictors. `penstock.datastream.window` exports them to users.

Everything here is pure. An assigner maps a record to windows, a trigger returns a `TriggerResult` based on its context,
and an evictor shortens a list. The window operator (`penstock.taskmanager.operators.window.operator`) handles state,
timers and output.
"""
