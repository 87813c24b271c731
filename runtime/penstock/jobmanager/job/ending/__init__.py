"""The end of an attempt: the state machine, its state, its events and its effects."""
