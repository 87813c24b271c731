"""The source of the state of a start, and the end of the incarnation before it."""
