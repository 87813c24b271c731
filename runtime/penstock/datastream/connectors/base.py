"""Base classes that all connectors share, under PyFlink's names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from penstock.connectors.core.delivery_guarantee import DeliveryGuarantee
from penstock.connectors.core.sink import Sink
from penstock.connectors.core.source import Source

__all__ = ["DeliveryGuarantee", "Sink", "Source", "StreamTransformer", "SupportsPreprocessing"]


class StreamTransformer(ABC):
    """Transformation of a stream before a sink consumes it."""

    @abstractmethod
    def apply(self, ds: Any, /) -> Any: ...


class SupportsPreprocessing(ABC):
    """Sink that needs a transformation of its input stream."""

    @abstractmethod
    def get_transformer(self) -> StreamTransformer | None: ...
