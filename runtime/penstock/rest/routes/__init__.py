"""Paths of the REST API. Each module makes the router of one resource for a gateway."""
