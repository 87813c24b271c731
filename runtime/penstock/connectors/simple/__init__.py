"""Connectors that need no external system or library: collections, generated records, sockets, printed and collected results."""
