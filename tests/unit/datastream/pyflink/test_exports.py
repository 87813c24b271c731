"""The packages export the documented names, and no others."""

from __future__ import annotations

import ast
import inspect
from importlib import import_module

import pytest

COMMON = """
ByteArraySchema CompletableFuture ConfigOption ConfigOptions Configuration DeserializationSchema Duration Encoder ExecutionConfig InputDependencyConstraint Instant JobClient
JobExecutionResult JobID JobStatus RestartStrategies RestartStrategyConfiguration Row RowKind SerializationSchema
SimpleStringSchema Time TimestampAssigner TypeInformation TypeSerializer Types WatermarkStrategy
"""
DATASTREAM = """
AggregateFunction AllWindowFunction AllWindowedStream AsyncDataStream AsyncFunction AsyncRetryPredicate AsyncRetryStrategy BroadcastConnectedStream
BroadcastProcessFunction BroadcastStream CachedDataStream CheckpointConfig CheckpointStorage CheckpointingMode CloseableIterator
CoFlatMapFunction CoGroupFunction CoMapFunction CoProcessFunction ConnectedStreams CountWindow CustomCheckpointStorage CustomStateBackend
DataStream DataStreamSink EmbeddedRocksDBStateBackend Evictor ExponentialBackoffDelayRetryStrategy
ExternalizedCheckpointRetention FileSystemCheckpointStorage FilterFunction FixedDelayRetryStrategy FlatMapFunction Function GlobalWindow
HashMapStateBackend JobManagerCheckpointStorage JoinFunction KeySelector KeyedBroadcastProcessFunction KeyedCoProcessFunction KeyedProcessFunction
KeyedStream MapFunction MemorySize MergingWindowAssigner NoRetryStrategy OutputTag Partitioner PredefinedOptions
ProcessAllWindowFunction ProcessFunction ProcessJoinFunction ProcessWindowFunction ReduceFunction RuntimeContext
RuntimeExecutionMode SinkFunction SlotSharingGroup SourceFunction StateBackend StreamExecutionEnvironment TimeDomain
TimeWindow TimerService Trigger TriggerResult Window WindowAssigner WindowFunction WindowedStream
"""


@pytest.mark.parametrize(("package", "names"), [("penstock.common", COMMON), ("penstock.datastream", DATASTREAM)])
class TestPackage:
    def test_all_contains_the_public_names(self, package: str, names: str) -> None:
        assert sorted(import_module(package).__all__) == sorted(names.split())

    def test_every_name_can_be_imported(self, package: str, names: str) -> None:
        module = import_module(package)
        for name in names.split():
            assert getattr(module, name).__name__ == name

    def test_dir_shows_the_names(self, package: str, names: str) -> None:
        assert set(names.split()) <= set(dir(import_module(package)))

    def test_type_checkers_see_the_same_names(self, package: str, names: str) -> None:
        tree = ast.parse(inspect.getsource(import_module(package)))
        guarded = next(node for node in tree.body if isinstance(node, ast.If))
        imports = [node for node in guarded.body if isinstance(node, ast.ImportFrom)]
        assert sorted(alias.name for node in imports for alias in node.names) == sorted(names.split())

    def test_an_unknown_name_is_an_attribute_error(self, package: str, names: str) -> None:
        with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
            import_module(package).Nonsense  # noqa: B018


@pytest.mark.parametrize(
    "module",
    [
        "common.type_info.composite_types",
        "common.typeinfo",
        "common.serialization",
        "datastream.data_stream",
        "datastream.functions",
    ],
)
def test_modules_that_list_their_names_have_them(module: str) -> None:
    loaded = import_module(f"penstock.{module}")
    public = {
        name
        for name, value in vars(loaded).items()
        if inspect.isclass(value) and value.__module__ == loaded.__name__ and not name.startswith("_")
    }
    assert public <= set(getattr(loaded, "__all__", public))
    for name in getattr(loaded, "__all__", ()):
        assert hasattr(loaded, name)
