"""Execution of one action. Every action is idempotent."""
