"""The RocksDB backend: state larger than memory, on the worker's disk."""
