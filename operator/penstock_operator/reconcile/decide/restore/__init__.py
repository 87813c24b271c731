"""Where a start gets its state from, and where the incarnation before it has ended."""
