"""The source of generated records."""

from penstock.connectors.simple.datagen import DataGeneratorSource

__all__ = ["DataGeneratorSource"]
