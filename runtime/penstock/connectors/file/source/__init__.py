"""FileSource: finds files, makes splits of them, reads records with byte offsets as positions."""
