"""Logging: levels, formats, bounded files, and the removal of secrets."""
