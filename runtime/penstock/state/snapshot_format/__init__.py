"""The backend-independent format of keyed state: rows, and segments of rows.

The hashmap backend writes it to files. Readers without RocksDB read a RocksDB snapshot as such rows.
"""
