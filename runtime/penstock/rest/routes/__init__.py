"""Paths of the REST API. Each module creates the router of one resource for a gateway."""
