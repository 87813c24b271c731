"""What all connectors have in common, under PyFlink's names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from penstock.connectors.delivery_guarantee import DeliveryGuarantee
from penstock.connectors.sink import Sink
from penstock.connectors.source import Source

__all__ = ["DeliveryGuarantee", "Sink", "Source", "StreamTransformer", "SupportsPreprocessing"]


class StreamTransformer(ABC):
    """Changes a stream before a sink takes it."""

    @abstractmethod
    def apply(self, ds: Any) -> Any: ...


class SupportsPreprocessing(ABC):
    """A sink that wants its stream changed first."""

    @abstractmethod
    def get_transformer(self) -> StreamTransformer | None: ...
