"""The stream classes under PyFlink's module name. See `penstock.datastream.streams`."""

from __future__ import annotations

from penstock.datastream.streams.closeable_iterator import CloseableIterator
from penstock.datastream.streams.connected_streams import (
    BroadcastConnectedStream,
    BroadcastStream,
    ConnectedStreams,
)
from penstock.datastream.streams.data_stream import CachedDataStream, DataStream
from penstock.datastream.streams.data_stream_sink import DataStreamSink
from penstock.datastream.streams.iterative_stream import IterativeStream
from penstock.datastream.streams.keyed_stream import KeyedStream
from penstock.datastream.streams.windowed_stream import AllWindowedStream, WindowedStream

__all__ = [
    "AllWindowedStream",
    "BroadcastConnectedStream",
    "BroadcastStream",
    "CachedDataStream",
    "CloseableIterator",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "IterativeStream",
    "KeyedStream",
    "WindowedStream",
]
