"""Overrides whose parameters have other names than those of the base class, as a type checker sees them; never run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import Any

from penstock.common.serialization import DeserializationSchema, SerializationSchema
from penstock.common.serializer import TypeSerializer
from penstock.common.watermark_strategy import TimestampAssigner, WatermarkGenerator
from penstock.connectors.core.sink import Committer, Sink, SinkWriter, WriterContext
from penstock.connectors.core.source import (
    ReadBounds,
    ReaderContext,
    Source,
    SourceReader,
    Split,
    SplitEnumerator,
    SplitReader,
)
from penstock.connectors.core.two_phase import TwoPhaseCommitSinkFunction
from penstock.connectors.core.write_ahead import CheckpointCommitter
from penstock.connectors.file.sink.bucket import BucketAssigner, BucketContext
from penstock.connectors.kafka.sink.serializer import KafkaTopicSelector
from penstock.connectors.kafka.source.deserializer import ConsumerRecord, KafkaRecordDeserializationSchema
from penstock.datastream.functions import (
    AggregateFunction,
    AllWindowFunction,
    AsyncFunction,
    BroadcastProcessFunction,
    CheckpointedFunction,
    CheckpointListener,
    CoFlatMapFunction,
    CoGroupFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatMapFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    JoinFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    ListCheckpointed,
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
from penstock.datastream.window import (
    Evictor,
    MergingWindowAssigner,
    SessionWindowTimeGapExtractor,
    TimeWindow,
    Trigger,
    TriggerResult,
    WindowAssigner,
)
from penstock.functions.accumulators import Accumulator
from penstock.functions.async_io.async_retry_strategies import AsyncRetryPredicate, AsyncRetryStrategy
from penstock.functions.join_functions import FlatJoinFunction
from penstock.records.batch import Batch


class Map(MapFunction[int, int]):
    def open(self, context: RuntimeContext) -> None: ...

    def map(self, reading: int) -> int:
        return reading


class CoMap(CoMapFunction):
    def map1(self, left: Any) -> Any: ...

    def map2(self, right: Any) -> Any: ...


class FlatMap(FlatMapFunction[int, int]):
    def flat_map(self, reading: int) -> Iterator[int]:
        yield reading


class CoFlatMap(CoFlatMapFunction):
    def flat_map1(self, left: Any) -> Any: ...

    def flat_map2(self, right: Any) -> Any: ...


class Reduce(ReduceFunction[int]):
    def reduce(self, left: int, right: int) -> int:
        return left + right


class Aggregate(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, reading: int, so_far: int) -> int:
        return so_far + reading

    def get_result(self, so_far: int) -> int:
        return so_far

    def merge(self, left: int, right: int) -> int:
        return left + right


class Key(KeySelector[int, int]):
    def get_key(self, reading: int) -> int:
        return reading


class Filter(FilterFunction[int]):
    def filter(self, reading: int) -> bool:
        return reading > 0


class Partition(Partitioner):
    def partition(self, station: Any, count: int) -> int:
        return 0


class Numbers(SourceFunction):
    def run(self, output: SourceFunction.SourceContext) -> None: ...


class Write(SinkFunction):
    def invoke(self, reading: Any, ctx: SinkFunction.Context) -> None: ...


class Join(JoinFunction):
    def join(self, order: Any, payment: Any) -> Any: ...


class FlatJoin(FlatJoinFunction):
    def join(self, order: Any, payment: Any) -> Any: ...


class CoGroup(CoGroupFunction):
    def co_group(self, orders: Iterable[Any], payments: Iterable[Any]) -> Any: ...


class ProcessJoin(ProcessJoinFunction):
    def process_element(self, order: Any, payment: Any, context: ProcessJoinFunction.Context) -> Any: ...


class Process(ProcessFunction):
    def process_element(self, reading: Any, context: ProcessFunction.Context) -> Any: ...

    def on_timer(self, time: int, context: ProcessFunction.OnTimerContext) -> Any: ...


class KeyedProcess(KeyedProcessFunction):
    def process_element(self, reading: Any, context: KeyedProcessFunction.Context) -> Any: ...

    def on_timer(self, time: int, context: KeyedProcessFunction.OnTimerContext) -> Any: ...


class CoProcess(CoProcessFunction):
    def process_element1(self, left: Any, context: CoProcessFunction.Context) -> Any: ...

    def process_element2(self, right: Any, context: CoProcessFunction.Context) -> Any: ...

    def on_timer(self, time: int, context: CoProcessFunction.OnTimerContext) -> Any: ...


class KeyedCoProcess(KeyedCoProcessFunction):
    def process_element1(self, left: Any, context: KeyedCoProcessFunction.Context) -> Any: ...

    def process_element2(self, right: Any, context: KeyedCoProcessFunction.Context) -> Any: ...

    def on_timer(self, time: int, context: KeyedCoProcessFunction.OnTimerContext) -> Any: ...


class BroadcastProcess(BroadcastProcessFunction):
    def process_element(self, reading: Any, context: BroadcastProcessFunction.ReadOnlyContext) -> Any: ...

    def process_broadcast_element(self, rule: Any, context: BroadcastProcessFunction.Context) -> Any: ...


class KeyedBroadcastProcess(KeyedBroadcastProcessFunction):
    def process_element(self, reading: Any, context: KeyedBroadcastProcessFunction.ReadOnlyContext) -> Any: ...

    def process_broadcast_element(self, rule: Any, context: KeyedBroadcastProcessFunction.Context) -> Any: ...

    def on_timer(self, time: int, context: KeyedBroadcastProcessFunction.OnTimerContext) -> Any: ...


class OnWindow(WindowFunction[int, int, str, TimeWindow]):
    def apply(self, station: str, time: TimeWindow, readings: Iterable[int]) -> Iterable[int]:
        return readings


class OnAll(AllWindowFunction[int, int, TimeWindow]):
    def apply(self, time: TimeWindow, readings: Iterable[int]) -> Iterable[int]:
        return readings


class ProcessWindow(ProcessWindowFunction[int, int, str, TimeWindow]):
    def process(
        self, station: str, ctx: ProcessWindowFunction.Context[TimeWindow], readings: Iterable[int]
    ) -> Iterable[int]:
        return readings

    def clear(self, ctx: ProcessWindowFunction.Context[TimeWindow]) -> None: ...


class ProcessAll(ProcessAllWindowFunction[int, int, TimeWindow]):
    def process(self, ctx: ProcessAllWindowFunction.Context[TimeWindow], readings: Iterable[int]) -> Iterable[int]:
        return readings

    def clear(self, ctx: ProcessAllWindowFunction.Context[TimeWindow]) -> None: ...


class LookUp(AsyncFunction[int, int]):
    async def async_invoke(self, reading: int) -> list[int]:
        return [reading]

    def timeout(self, reading: int) -> list[int]:
        return [reading]


class Retries(AsyncRetryStrategy):
    def can_retry(self, attempts: int) -> bool:
        return False

    def get_backoff_time_millis(self, attempts: int) -> int:
        return 0

    def get_retry_predicate(self) -> AsyncRetryPredicate:
        raise NotImplementedError


class Checkpointed(CheckpointedFunction, CheckpointListener):
    def initialize_state(self, ctx: FunctionInitializationContext) -> None: ...

    def snapshot_state(self, ctx: FunctionSnapshotContext) -> None: ...

    def notify_checkpoint_complete(self, number: int) -> None: ...

    def notify_checkpoint_aborted(self, number: int) -> None: ...


class Listed(ListCheckpointed):
    def snapshot_state(self, number: int, time: int) -> list[Any]:
        return []

    def restore_state(self, parts: list[Any]) -> None: ...


class Longest(Accumulator):
    def add(self, text: Any) -> None: ...

    def get_local_value(self) -> Any: ...

    def reset_local(self) -> None: ...

    def parts(self) -> Any: ...

    @classmethod
    def merged(cls, texts: Iterable[Any]) -> Any: ...


class Every(Trigger[Any, TimeWindow]):
    def on_element(self, reading: Any, time: int, pane: TimeWindow, context: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE

    def on_processing_time(self, now: int, pane: TimeWindow, context: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE

    def on_event_time(self, now: int, pane: TimeWindow, context: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE

    def on_merge(self, pane: TimeWindow, context: Trigger.OnMergeContext) -> None: ...

    def clear(self, pane: TimeWindow, context: Trigger.TriggerContext) -> None: ...


class Assigner(WindowAssigner[Any, TimeWindow]):
    def assign_windows(self, reading: Any, time: int, ctx: WindowAssigner.WindowAssignerContext) -> list[TimeWindow]:
        return []

    def get_default_trigger(self, environment: object = None) -> Trigger[Any, TimeWindow]:
        return Every()

    def is_event_time(self) -> bool:
        return True


class Merging(MergingWindowAssigner[Any, TimeWindow]):
    def merge_windows(
        self, panes: Iterable[TimeWindow], receiver: MergingWindowAssigner.MergeCallback[TimeWindow]
    ) -> None: ...


class Gap(SessionWindowTimeGapExtractor):
    def extract(self, reading: Any) -> int:
        return 1000


class Evict(Evictor[TimeWindow]):
    def evict_before(
        self, values: list[Any], count: int, pane: TimeWindow, context: Evictor.EvictorContext
    ) -> None: ...

    def evict_after(self, values: list[Any], count: int, pane: TimeWindow, context: Evictor.EvictorContext) -> None: ...


class Times(TimestampAssigner):
    def extract_timestamp(self, reading: Any, before: int) -> int:
        return before


class Watermarks(WatermarkGenerator):
    def on_event(self, reading: Any, time: int) -> int | None: ...


class Text(SerializationSchema, DeserializationSchema):
    def serialize(self, text: Any) -> bytes:
        return b""

    def deserialize(self, data: bytes) -> Any: ...


class Serializer(TypeSerializer[int]):
    def serialize(self, number: int, out: BytesIO) -> None: ...

    def deserialize(self, source: BytesIO) -> int:
        return 0


class Topic(KafkaTopicSelector):
    def apply(self, reading: Any) -> str:
        return "t"


class FromKafka(KafkaRecordDeserializationSchema):
    def deserialize(self, message: ConsumerRecord) -> Any: ...


class Bucket(BucketAssigner):
    def get_bucket_id(self, reading: Any, ctx: BucketContext) -> str:
        return "b"


class Transaction(TwoPhaseCommitSinkFunction):
    def begin_transaction(self) -> Any: ...

    def invoke(self, handle: Any, reading: Any, ctx: Any) -> None: ...

    def pre_commit(self, handle: Any) -> None: ...

    def commit(self, handle: Any) -> None: ...

    def abort(self, handle: Any) -> None: ...


class Notes(CheckpointCommitter):
    def is_committed(self, sink: str, index: int, number: int) -> bool:
        return False

    def commit(self, sink: str, index: int, number: int) -> None: ...


class Enumerator(SplitEnumerator):
    def discover(self) -> list[Split]:
        return []

    def snapshot(self) -> Any: ...

    def restore(self, saved: Any) -> None: ...


class Reader(SourceReader):
    def open_split(self, part: Split, start: Any) -> SplitReader:
        return PartReader()


class PartReader(SplitReader):
    def read(self, limits: ReadBounds) -> Batch | None: ...

    @property
    def position(self) -> Any: ...

    @property
    def finished(self) -> bool:
        return True


class Table(Source):
    def create_enumerator(self) -> SplitEnumerator:
        return Enumerator()

    def create_reader(self, ctx: ReaderContext) -> SourceReader:
        return Reader()


class TableWriter(SinkWriter):
    def write(self, rows: list[Any], times: list[int] | None, mark: int) -> None: ...

    def prepare_commit(self, number: int) -> list[Any]:
        return []


class TableCommitter(Committer):
    def commit(self, parts: list[Any]) -> None: ...


class TableSink(Sink):
    def create_writer(self, ctx: WriterContext, before: list[Any]) -> SinkWriter:
        return TableWriter()

    def create_committer(self, stores: dict[str, Any], *, job_id: str = "", uid: str = "") -> Committer:
        return TableCommitter()
