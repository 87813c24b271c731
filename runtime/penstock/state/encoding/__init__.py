"""Values and keys as bytes and back: codecs, schemas and their evolution, hashes of keys that never change."""
