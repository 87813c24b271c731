"""Commands for session clusters: their processes, and the programs that run on them."""
