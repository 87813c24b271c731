"""The format of keyed state that is independent of a backend: rows, and segments of rows. The hashmap backend writes it as
files; a RocksDB snapshot is read as such rows by whoever is not RocksDB."""
