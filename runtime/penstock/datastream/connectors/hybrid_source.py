"""Sources one after another, under PyFlink's names. What they do is told in `penstock.connectors.hybrid`."""

from penstock.connectors.hybrid import HybridSource, HybridSourceBuilder

__all__ = ["HybridSource", "HybridSourceBuilder"]
