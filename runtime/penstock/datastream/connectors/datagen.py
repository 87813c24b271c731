"""The source of generated records."""

from penstock.connectors.datagen import DataGeneratorSource

__all__ = ["DataGeneratorSource"]
