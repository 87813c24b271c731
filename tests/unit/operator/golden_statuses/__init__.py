"""Worlds with statuses of released operators, one in every phase and step. A later operator continues from each."""
