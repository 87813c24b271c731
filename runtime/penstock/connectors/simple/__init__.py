"""Connectors without a system behind them: collections, generated records, sockets, printed and collected results."""
