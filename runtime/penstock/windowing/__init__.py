"""Windows, window assigners, triggers and evictors: what `penstock.datastream.window` gives the user.

Everything here is pure: an assigner maps a record to windows, a trigger answers `TriggerResult`s through the context it
is given, an evictor shortens a list. The state, the timers and the emitting are the window operator's
(`penstock.taskmanager.operators.window.operator`).
"""
