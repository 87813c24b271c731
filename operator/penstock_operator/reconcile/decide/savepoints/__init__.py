"""The savepoints that the operator asks for: remembered until they have a FlinkSnapshot, taken by nonce and clock, deleted in time."""
