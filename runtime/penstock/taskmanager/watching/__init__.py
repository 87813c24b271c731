"""Observation of a task: its watchdog, its stacks on request, its log, its metrics and the latency of its records."""
