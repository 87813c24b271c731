"""The files of a database: what its MANIFEST says of them, those of a moment, those that a range of key groups needs."""
