"""Files as sources and sinks, under PyFlink's names. What they do is told in `penstock.connectors.file`."""

from penstock.connectors.file.bucket import BucketAssigner
from penstock.connectors.file.part_file import OutputFileConfig
from penstock.connectors.file.rolling import DefaultRollingPolicy, OnCheckpointRollingPolicy, RollingPolicy
from penstock.connectors.file.sink import FileSink
from penstock.connectors.file.source import (
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
    "FileEnumeratorProvider",
    "FileSink",
    "FileSource",
    "FileSourceBuilder",
    "FileSplitAssignerProvider",
    "OnCheckpointRollingPolicy",
    "OutputFileConfig",
    "RollingPolicy",
    "StreamFormat",
]
