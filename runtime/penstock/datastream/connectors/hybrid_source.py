"""Hybrid source, which reads several sources one after another, under PyFlink's names. See `penstock.connectors.simple.hybrid`."""

from penstock.connectors.simple.hybrid import HybridSource, HybridSourceBuilder

__all__ = ["HybridSource", "HybridSourceBuilder"]
