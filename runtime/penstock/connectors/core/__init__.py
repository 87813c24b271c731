"""The interfaces that connectors implement, and the helpers that they share."""
