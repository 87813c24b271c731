"""The arguments of stream methods: their checks, key selectors, aggregates and the types of returned rows."""
