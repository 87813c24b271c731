"""Files as sources and sinks, under PyFlink's names. See `penstock.connectors.file`."""

from penstock.connectors.file.sink.bucket import BucketAssigner
from penstock.connectors.file.sink.compact import FileCompactor, FileCompactStrategy
from penstock.connectors.file.sink.file_sink import FileSink
from penstock.connectors.file.sink.part_file import OutputFileConfig
from penstock.connectors.file.sink.rolling import DefaultRollingPolicy, OnCheckpointRollingPolicy, RollingPolicy
from penstock.connectors.file.sink.streaming_file_sink import StreamingFileSink
from penstock.connectors.file.source.file_source import (
    FileEnumeratorProvider,
    FileSource,
    FileSourceBuilder,
    FileSplitAssignerProvider,
)
from penstock.connectors.formats.record_format import BulkFormat, StreamFormat

__all__ = [
    "BucketAssigner",
    "BulkFormat",
    "DefaultRollingPolicy",
    "FileCompactStrategy",
    "FileCompactor",
    "FileEnumeratorProvider",
    "FileSink",
    "FileSource",
    "FileSourceBuilder",
    "FileSplitAssignerProvider",
    "OnCheckpointRollingPolicy",
    "OutputFileConfig",
    "RollingPolicy",
    "StreamFormat",
    "StreamingFileSink",
]
