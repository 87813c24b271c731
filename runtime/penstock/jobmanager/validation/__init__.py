"""Checks that refuse an invalid job before any part of it runs."""
