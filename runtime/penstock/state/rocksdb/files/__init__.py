"""The files of a database: reading its MANIFEST, freezing its current files, and selecting those of a range of key groups."""
