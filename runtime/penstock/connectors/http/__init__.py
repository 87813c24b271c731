"""A source that polls a URL (`source`). It uses httpx, which is a main dependency."""
