"""The limits that a platform sets for the jobs of its tenants."""
