"""Pending requests to external services while the job continues."""
