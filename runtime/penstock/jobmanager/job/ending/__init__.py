"""Who ends an attempt, and how: the state machine, what it knows, what it hears and what it wants done."""
