"""The encoding of values and keys: codecs, schemas and their evolution, and stable hashes of keys."""
