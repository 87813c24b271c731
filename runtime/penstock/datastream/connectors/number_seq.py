"""The source of a range of numbers."""

from penstock.connectors.simple.number_seq import NumberSequenceSource

__all__ = ["NumberSequenceSource"]
