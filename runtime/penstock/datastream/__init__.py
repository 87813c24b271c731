"""The DataStream API: the classes and functions that a program uses. It is independent of Spark and of tasks.

A program gets a `StreamExecutionEnvironment`, creates streams from sources, transforms them, ends them in sinks and calls
`execute`. The names, the modules and their meaning are PyFlink's.

>>> from penstock.datastream import OutputTag
>>> OutputTag("late").tag_id
'late'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.common.program.extras import explain_missing_packages
from penstock.common.program.uncaught import shorten_messages

if TYPE_CHECKING:
    from penstock.datastream.async_data_stream import AsyncDataStream
    from penstock.datastream.async_retry_strategies import (
        ExponentialBackoffDelayRetryStrategy,
        FixedDelayRetryStrategy,
        NoRetryStrategy,
    )
    from penstock.datastream.checkpoint_config import CheckpointConfig
    from penstock.datastream.checkpoint_storage import (
        CheckpointStorage,
        CustomCheckpointStorage,
        FileSystemCheckpointStorage,
        JobManagerCheckpointStorage,
    )
    from penstock.datastream.checkpointing_mode import CheckpointingMode
    from penstock.datastream.data_stream import (
        AllWindowedStream,
        BroadcastConnectedStream,
        BroadcastStream,
        CachedDataStream,
        CloseableIterator,
        ConnectedStreams,
        DataStream,
        DataStreamSink,
        KeyedStream,
        WindowedStream,
    )
    from penstock.datastream.execution_mode import RuntimeExecutionMode
    from penstock.datastream.externalized_checkpoint_retention import ExternalizedCheckpointRetention
    from penstock.datastream.functions import (
        AggregateFunction,
        AllWindowFunction,
        AsyncFunction,
        AsyncRetryPredicate,
        AsyncRetryStrategy,
        BroadcastProcessFunction,
        CoFlatMapFunction,
        CoGroupFunction,
        CoMapFunction,
        CoProcessFunction,
        FilterFunction,
        FlatMapFunction,
        Function,
        JoinFunction,
        KeyedBroadcastProcessFunction,
        KeyedCoProcessFunction,
        KeyedProcessFunction,
        KeySelector,
        MapFunction,
        Partitioner,
        ProcessAllWindowFunction,
        ProcessFunction,
        ProcessJoinFunction,
        ProcessWindowFunction,
        ReduceFunction,
        RuntimeContext,
        SinkFunction,
        SourceFunction,
        WindowFunction,
    )
    from penstock.datastream.output_tag import OutputTag
    from penstock.datastream.slot_sharing_group import MemorySize, SlotSharingGroup
    from penstock.datastream.state_backend import (
        CustomStateBackend,
        EmbeddedRocksDBStateBackend,
        HashMapStateBackend,
        PredefinedOptions,
        StateBackend,
    )
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
    from penstock.datastream.time_domain import TimeDomain
    from penstock.datastream.timerservice import TimerService
    from penstock.datastream.window import (
        CountWindow,
        Evictor,
        GlobalWindow,
        MergingWindowAssigner,
        TimeWindow,
        Trigger,
        TriggerResult,
        Window,
        WindowAssigner,
    )

_MODULES = {
    "checkpoint_storage": [
        "CheckpointStorage",
        "CustomCheckpointStorage",
        "FileSystemCheckpointStorage",
        "JobManagerCheckpointStorage",
    ],
    "async_data_stream": ["AsyncDataStream"],
    "async_retry_strategies": [
        "ExponentialBackoffDelayRetryStrategy",
        "FixedDelayRetryStrategy",
        "NoRetryStrategy",
    ],
    "checkpoint_config": ["CheckpointConfig"],
    "checkpointing_mode": ["CheckpointingMode"],
    "data_stream": [
        "AllWindowedStream",
        "BroadcastConnectedStream",
        "BroadcastStream",
        "CachedDataStream",
        "CloseableIterator",
        "ConnectedStreams",
        "DataStream",
        "DataStreamSink",
        "KeyedStream",
        "WindowedStream",
    ],
    "execution_mode": ["RuntimeExecutionMode"],
    "externalized_checkpoint_retention": ["ExternalizedCheckpointRetention"],
    "functions": [
        "AggregateFunction",
        "AllWindowFunction",
        "AsyncFunction",
        "AsyncRetryPredicate",
        "AsyncRetryStrategy",
        "BroadcastProcessFunction",
        "CoFlatMapFunction",
        "CoGroupFunction",
        "CoMapFunction",
        "CoProcessFunction",
        "FilterFunction",
        "FlatMapFunction",
        "Function",
        "JoinFunction",
        "KeySelector",
        "KeyedBroadcastProcessFunction",
        "KeyedCoProcessFunction",
        "KeyedProcessFunction",
        "MapFunction",
        "Partitioner",
        "ProcessAllWindowFunction",
        "ProcessFunction",
        "ProcessJoinFunction",
        "ProcessWindowFunction",
        "ReduceFunction",
        "RuntimeContext",
        "SinkFunction",
        "SourceFunction",
        "WindowFunction",
    ],
    "output_tag": ["OutputTag"],
    "slot_sharing_group": ["MemorySize", "SlotSharingGroup"],
    "state_backend": [
        "CustomStateBackend",
        "EmbeddedRocksDBStateBackend",
        "HashMapStateBackend",
        "PredefinedOptions",
        "StateBackend",
    ],
    "stream_execution_environment": ["StreamExecutionEnvironment"],
    "time_domain": ["TimeDomain"],
    "timerservice": ["TimerService"],
    "window": [
        "CountWindow",
        "Evictor",
        "GlobalWindow",
        "MergingWindowAssigner",
        "TimeWindow",
        "Trigger",
        "TriggerResult",
        "Window",
        "WindowAssigner",
    ],
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "AggregateFunction",
    "AllWindowFunction",
    "AllWindowedStream",
    "AsyncDataStream",
    "AsyncFunction",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "BroadcastConnectedStream",
    "BroadcastProcessFunction",
    "BroadcastStream",
    "CachedDataStream",
    "CheckpointConfig",
    "CheckpointStorage",
    "CheckpointingMode",
    "CloseableIterator",
    "CoFlatMapFunction",
    "CoGroupFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "ConnectedStreams",
    "CountWindow",
    "CustomCheckpointStorage",
    "CustomStateBackend",
    "DataStream",
    "DataStreamSink",
    "EmbeddedRocksDBStateBackend",
    "Evictor",
    "ExponentialBackoffDelayRetryStrategy",
    "ExternalizedCheckpointRetention",
    "FileSystemCheckpointStorage",
    "FilterFunction",
    "FixedDelayRetryStrategy",
    "FlatMapFunction",
    "Function",
    "GlobalWindow",
    "HashMapStateBackend",
    "JobManagerCheckpointStorage",
    "JoinFunction",
    "KeySelector",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStream",
    "MapFunction",
    "MemorySize",
    "MergingWindowAssigner",
    "NoRetryStrategy",
    "OutputTag",
    "Partitioner",
    "PredefinedOptions",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessJoinFunction",
    "ProcessWindowFunction",
    "ReduceFunction",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "SinkFunction",
    "SlotSharingGroup",
    "SourceFunction",
    "StateBackend",
    "StreamExecutionEnvironment",
    "TimeDomain",
    "TimeWindow",
    "TimerService",
    "Trigger",
    "TriggerResult",
    "Window",
    "WindowAssigner",
    "WindowFunction",
    "WindowedStream",
]

shorten_messages()
explain_missing_packages()


def __getattr__(name: str) -> Any:
    """Import a name at its first use, so that a worker that needs one function class loads nothing else."""
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULE_OF])
