"""One subtask of one stage: its operators with their state, its input gate, its exchange writers."""

from __future__ import annotations

import base64
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from penstock.checkpoint.files.codec import STAGED_FILE
from penstock.checkpoint.files.state_files import StateFileReader, StateFileWriter
from penstock.common.errors import PenstockError, StateTypeError
from penstock.connectors.sink import StagedCommittable
from penstock.functions.accumulators import Accumulator
from penstock.functions.operator_context import Clock, OperatorContext
from penstock.graph.job_graph import JobGraph, OperatorNode, Stage
from penstock.graph.operator import Operator
from penstock.graph.transformation import Exchange
from penstock.metrics.scope import ScopeFormats
from penstock.metrics.task import TaskMetrics
from penstock.records.batch import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch
from penstock.records.fields import shortened
from penstock.state.backend import KeyContext, KeyedStateBackend, SnapshotUpload
from penstock.state.backend import StateFileWriter as StateFiles
from penstock.state.encoding.tagged import Unencodable, pack, type_name
from penstock.state.factory import create_backend, create_timer_service
from penstock.state.key_groups import key_group_range
from penstock.state.operator_state import OperatorStateStore
from penstock.taskmanager.chain import ChainedOutput
from penstock.taskmanager.exchange.input_gate import InputGate
from penstock.taskmanager.exchange.rows import Buffer
from penstock.taskmanager.exchange.writer import Emit, ExchangeWriter
from penstock.taskmanager.exchange.writers import create_writer
from penstock.taskmanager.local_files import LocalStateFiles
from penstock.taskmanager.operators.connectors.sink import SinkOperator
from penstock.taskmanager.operators.connectors.source import SourceOperator
from penstock.taskmanager.operators.factory import create_operator
from penstock.taskmanager.pace import Pace
from penstock.taskmanager.protocol import RestoreCommand, SnapshotAck, SnapshotCommand, VertexMetrics
from penstock.taskmanager.uploads import SnapshotUploads
from penstock.taskmanager.waker import Waker
from penstock.taskmanager.watchdog import CLOSING, OPENING, RESTORING, Unwatched

logger = logging.getLogger(__name__)

_LOOK_S = 0.02
"""While an operator is full its task looks at timers and output so often."""


@dataclass
class TaskEnvironment:
    """What the process gives all subtasks of a slot."""

    job_id: str
    job_name: str
    attempt: int
    clock: Clock
    backend: str = "hashmap"
    backend_options: dict[str, Any] = field(default_factory=dict)
    work_dir: str = ""
    local_folders: list[str] = field(default_factory=list)
    """Where copies of state files are kept, the slot's own folder first; empty: nowhere."""
    metric_scopes: ScopeFormats | None = None
    object_store_options: dict[str, Any] = field(default_factory=dict)
    merged_file_bytes: int = 0
    """Largest object that small state files are put together in; 0: they are not."""
    print_line: Callable[[str], None] | None = None
    results: Callable[[str, list[Any]], None] | None = None
    host: str = "localhost"
    task_manager: str = ""
    watchdog: Unwatched = field(default_factory=Unwatched)
    waker: Waker = field(default_factory=Waker)


class Subtask:
    """Built at the first epoch of an attempt; driven by `LevelTask` from one thread."""

    def __init__(self, graph: JobGraph, stage: Stage, index: int, environment: TaskEnvironment, emit: Emit) -> None:
        self.graph = graph
        self.stage = stage
        self.index = index
        self.environment = environment
        self.metrics = VertexMetrics()
        self._task_metrics = TaskMetrics(
            {
                "host": environment.host,
                "job_id": environment.job_id,
                "job_name": environment.job_name,
                "task_name": stage.name,
                "task_id": str(stage.id),
                "subtask_index": str(index),
                "tm_id": environment.task_manager,
                "task_attempt_num": str(environment.attempt),
                "task_attempt_id": f"{environment.job_id}_{stage.id}_{index}_{environment.attempt}",
            },
            environment.metric_scopes,
        )
        self.sources: dict[str, SourceOperator] = {}
        self._contexts: dict[int, OperatorContext] = {}
        self._operators: dict[int, Operator] = {}
        self._backends: dict[int, KeyedStateBackend] = {}
        self._local: dict[int, LocalStateFiles] = {}
        self._writers: list[ExchangeWriter] = []
        self._targets: dict[int, list[tuple[Operator, int]]] = {}
        self._heads: list[Operator] = []
        self._pace = Pace(sys.maxsize)
        self._build(emit)
        self._at_work = [operator for operator in self._operators.values() if operator.capacity is not None]
        """Operators that go on working on records after `process_batch`."""
        self._limit_batches()
        self.gate = self._create_gate()

    # --- building ---------------------------------------------------------------------------------------------

    def _build(self, emit: Emit) -> None:
        graph = self.graph
        outputs = {index: ChainedOutput() for index in self.stage.operators}
        for index in self.stage.operators:
            self._operators[index] = create_operator(graph.operators[index].operation)
        for index in self.stage.operators:
            for edge in graph.operators[index].outputs:
                if edge.exchange is None:
                    outputs[index].add_operator(edge.side_tag, self._operators[edge.target], edge.input_index)
                else:
                    writer = create_writer(graph.exchanges[edge.exchange], self.index, emit)
                    self._writers.append(writer)
                    outputs[index].add_writer(edge.side_tag, writer)
        for index, operator in self._operators.items():
            node = graph.operators[index]
            context = self._context(node, operator)
            self._contexts[index] = context
            operator.setup(context, outputs[index])
            if isinstance(operator, SourceOperator):
                self.sources[node.uid] = operator
        self._outputs = outputs
        for exchange_id in self.stage.inputs:
            for target in graph.exchanges[exchange_id].targets:
                if target.stage == self.stage.id:
                    operator = self._operators[target.operator]
                    self._targets.setdefault(exchange_id, []).append((operator, target.input_index))
                    if operator not in self._heads:
                        self._heads.append(operator)

    def _limit_batches(self) -> None:
        """An operator that is nearly full shall not get many times what it can work on."""
        if self._at_work:
            self.environment.waker.open()
            most = min(operator.capacity or 1 for operator in self._at_work)
            self._pace = Pace(most)
            for source in self.sources.values():
                source.limit_batches(most)

    def _context(self, node: OperatorNode, operator: Operator) -> OperatorContext:
        environment = self.environment
        context = OperatorContext(
            uid=node.uid,
            name=node.name,
            subtask=self.index,
            parallelism=node.parallelism,
            max_parallelism=node.max_parallelism,
            attempt=environment.attempt,
            clock=environment.clock,
            operator_state=OperatorStateStore(node.name),
            metrics=self._task_metrics.operator_group(node.uid, node.name),
            job_parameters=self.graph.job_parameters,
            job_id=environment.job_id,
            job_name=environment.job_name,
            user_location=node.user_location,
            print_line=environment.print_line,
            results=environment.results,
            wake=environment.waker.set,
            auto_watermark_interval_ms=self.graph.auto_watermark_interval_ms,
            object_store_options=environment.object_store_options,
        )
        if operator.is_keyed:
            with context.named_in_errors():
                backend = self._create_backend(node, operator)
            context.keyed_state = backend
            context.timers = create_timer_service(backend)
            self._backends[node.index] = backend
            if environment.local_folders:
                name = f"{environment.attempt}-{node.index}-{self.index}"
                self._local[node.index] = LocalStateFiles(environment.local_folders, environment.job_id, name)
        return context

    def _create_backend(self, node: OperatorNode, operator: Operator) -> KeyedStateBackend:
        environment = self.environment
        return create_backend(
            environment.backend,
            key_group_range=key_group_range(self.index, node.parallelism, node.max_parallelism),
            max_parallelism=node.max_parallelism,
            key_context=KeyContext(),
            clock=environment.clock,
            work_dir=f"{environment.work_dir}/{node.index}-{self.index}" if environment.work_dir else "",
            options=environment.backend_options,
            operator_name=node.name,
            key_type=operator.key_type,
        )

    def _create_gate(self) -> InputGate | None:
        if not self.stage.inputs:
            return None
        channels = []
        for exchange_id in self.stage.inputs:
            spec = self.graph.exchanges[exchange_id]
            if spec.partitioning.exchange is Exchange.FORWARD:
                channels.append((exchange_id, self.index))
            else:
                channels.extend((exchange_id, sender) for sender in range(spec.source_parallelism))
        return InputGate(channels)

    # --- life cycle -------------------------------------------------------------------------------------------

    def restore(self, command: RestoreCommand, files: StateFileReader) -> None:
        for index, context in self._contexts.items():
            state = command.subtasks.get(context.uid)
            if state is None:
                continue
            context.is_restored = True
            node = self.graph.operators[index]
            with self._step(RESTORING, context):
                if state.operator:
                    context.operator_state.restore(state.operator, self.index, node.parallelism)
                if index in self._backends and state.keyed:
                    local = self._local.get(index)
                    reader = files if local is None else local.reader(files)
                    self._backends[index].restore(state.keyed, reader, owned=not command.is_foreign)
                    if local is not None:
                        for handle in state.keyed:
                            local.note(0, handle)
                        logger.info("%s: %d state files were here, %d in storage", node.name, local.used, local.fetched)

    def open(self) -> None:
        """Downstream operators first, so that whatever an operator emits while opening finds them open."""
        for index in reversed(self.stage.operators):
            with self._step(OPENING, self._contexts[index]):
                self._operators[index].open()

    @contextmanager
    def _step(self, name: str, context: OperatorContext) -> Iterator[None]:
        with context.named_in_errors(), self.environment.watchdog.step(name, context.name, context.user_location):
            yield

    def close(self) -> None:
        """Close every operator, whatever others raise, then the state.

        Raises:
            What the first of them raised that could not.
        """
        first: BaseException | None = None
        for index, operator in self._operators.items():
            try:
                with self._step(CLOSING, self._contexts[index]):
                    operator.close()
            except BaseException as error:
                if first is not None:
                    logger.warning("%s cannot be closed, either", self._contexts[index].name, exc_info=error)
                first = first or error
        for backend in self._backends.values():
            backend.close()
        for local in self._local.values():
            local.close()
        if first is not None:
            raise first

    # --- processing -------------------------------------------------------------------------------------------

    def process_parts(self, buffer: Buffer) -> Iterator[None]:
        """Process a buffer; yields after each part of it that takes as long as a batch may."""
        assert self.gate is not None
        batch = self._batch(buffer)
        if batch is not None:
            self.metrics.records_in += buffer.size
            self.metrics.bytes_in += len(buffer.row)
            yield from self._process_batch(batch, self._targets[buffer.exchange])
        self._advance(buffer)
        yield

    def _process_batch(self, batch: Batch, targets: list[tuple[Operator, int]]) -> Iterator[None]:
        begin, size, clock = 0, len(batch), time.perf_counter
        while begin < size:
            if self.is_full:
                yield from self._wait_for_room()
            end = min(begin + self._pace.records, size)
            part = batch if end - begin == size else batch.slice(begin, end)
            started = clock()
            for operator, input_index in targets:
                operator.process_batch(part, input_index)
            self._pace.took(end - begin, clock() - started)
            begin = end
            if begin < size:
                yield

    @property
    def is_full(self) -> bool:
        """An operator has as many records at work as it can."""
        return any(operator.is_full for operator in self._at_work)

    def take_finished(self) -> None:
        """Emit what operators have worked on since they were given it."""
        for operator in self._at_work:
            operator.take_finished()

    def _wait_for_room(self) -> Iterator[None]:
        """Timers and output have their turns meanwhile; what is waited for is somebody else's work."""
        while self.is_full:
            started = time.perf_counter()
            if self.environment.waker.wait(_LOOK_S):
                self.environment.waker.take()  # else nobody would sleep here any more
            waited_ms = (time.perf_counter() - started) * 1e3
            self.metrics.busy_ms -= waited_ms
            self.metrics.blocked_ms += waited_ms
            self.take_finished()
            yield

    def _advance(self, buffer: Buffer) -> None:
        """A buffer's records are processed: its watermark counts."""
        assert self.gate is not None
        was_idle = self.gate.is_idle
        watermark = self.gate.advance(buffer)
        if watermark is not None:
            self.metrics.watermark = watermark
            for operator in self._heads:
                operator.process_watermark(watermark)
        if self.gate.is_idle != was_idle:
            for operator in self._heads:
                operator.process_idle(self.gate.is_idle)

    def _batch(self, buffer: Buffer) -> Batch | None:
        try:
            return buffer.batch()
        except Exception as error:
            sender = self.graph.exchanges[buffer.exchange]
            raise StateTypeError(
                f"records sent to another subtask cannot be made again there: {type(error).__name__}: {error}",
                remedy="an object must come back from what pickle writes of it: give its class a __reduce__ or __getstate__ "
                "that says how, or send plain values",
                operator=sender.name,
                location=sender.user_location,
            ) from error

    def drain_gate(self) -> Iterator[None]:
        """Process the buffers at hand in watermark order; yields after each so that output can go on its way."""
        assert self.gate is not None
        for buffer in self.gate.drain():
            yield from self.process_parts(buffer)

    def advance_processing_time(self, now: int) -> None:
        for operator in self._operators.values():
            operator.advance_processing_time(now)

    def keyed_backends(self) -> dict[str, KeyedStateBackend]:
        """Keyed state by uid, with all that belongs to it."""
        for index in self._backends:
            self._operators[index].write_state()
        return {self._contexts[index].uid: backend for index, backend in self._backends.items()}

    def watermarks(self) -> dict[str, int]:
        """Each operator's event-time clock, by uid (ms)."""
        return {self._contexts[index].uid: o.current_watermark() for index, o in self._operators.items()}

    def next_processing_time(self) -> int | None:
        times = [t for t in (o.next_processing_time() for o in self._operators.values()) if t is not None]
        return min(times, default=None)

    def next_wake(self) -> int | None:
        """When (ms) `advance_processing_time` next has something to do; None: not without input."""
        times = [t for t in (o.next_wake() for o in self._operators.values()) if t is not None]
        return min(times, default=None)

    @property
    def holds_back(self) -> bool:
        """Whether records or a watermark wait for a flush."""
        return any(writer.holds_back for writer in self._writers)

    def notify(self, completed: list[int], aborted: list[int], committed: Sequence[int] = ()) -> None:
        for checkpoint_id in completed:
            for backend in self._backends.values():
                backend.notify_checkpoint_complete(checkpoint_id)
            for local in self._local.values():
                local.completed(checkpoint_id)
            for operator in self._operators.values():
                operator.notify_checkpoint_complete(checkpoint_id)
        for checkpoint_id in aborted:
            for backend in self._backends.values():
                backend.notify_checkpoint_aborted(checkpoint_id)
            for local in self._local.values():
                local.aborted(checkpoint_id)
            for operator in self._operators.values():
                operator.notify_checkpoint_aborted(checkpoint_id)
        for checkpoint_id in committed:
            for operator in self._operators.values():
                operator.notify_committed(checkpoint_id)

    def finish(self) -> None:
        for index in self.stage.operators:
            self._operators[index].finish()

    def end_of_epoch(self) -> None:
        for operator in self._operators.values():
            if isinstance(operator, SinkOperator):
                operator.end_of_epoch()

    def flush(self) -> None:
        for writer in self._writers:
            writer.flush()

    # --- snapshots --------------------------------------------------------------------------------------------

    def snapshot(
        self, command: SnapshotCommand, files: StateFileWriter | None, uploads: SnapshotUploads
    ) -> list[Future[SnapshotAck]]:
        """Freeze every operator's state now; the files are written by `uploads`."""
        futures: list[Future[SnapshotAck]] = []
        for index in self.stage.operators:
            started = time.perf_counter()
            context = self._contexts[index]
            backend = self._backends.get(index)
            with context.named_in_errors():
                taken = self._operators[index].snapshot(command.checkpoint_id)
                upload = None if backend is None or files is None else backend.snapshot(command.checkpoint_id)
                operator_state = context.operator_state.snapshot()
            staged = [c for c in taken.committables if isinstance(c, StagedCommittable)]
            ack = SnapshotAck(
                checkpoint_id=command.checkpoint_id,
                uid=context.uid,
                subtask=self.index,
                operator=operator_state,
                committables=[c for c in taken.committables if not isinstance(c, StagedCommittable)],
                sync_ms=(time.perf_counter() - started) * 1e3,
            )
            if upload is None and not staged:
                future: Future[SnapshotAck] = Future()
                future.set_result(ack)
            else:
                local = self._local.get(index)
                future = uploads.submit(partial(_upload, upload, staged, ack, files, uploads.files, context, local))
            futures.append(future)
        return futures

    def take_metrics(self) -> VertexMetrics:
        """What happened since the last call."""
        metrics = self.metrics
        metrics.bytes_out = sum(writer.bytes_out for writer in self._writers)
        metrics.records_out = sum(writer.records_out for writer in self._writers)
        for writer in self._writers:
            writer.bytes_out = writer.records_out = 0
        if not self._writers:
            metrics.records_out = sum(output.records for output in self._outputs.values())
        for output in self._outputs.values():
            output.records = 0
        for source in self.sources.values():
            metrics.records_in += source.records_out
            source.records_out = 0
            watermark = source.current_watermark()
            metrics.watermark = None if watermark in (MIN_TIMESTAMP, MAX_TIMESTAMP) else watermark
        if metrics.watermark == MAX_TIMESTAMP:
            metrics.watermark = None
        metrics.user = self._task_metrics.snapshot()
        metrics.accumulators = {
            name: [accumulator.kind, _packed(accumulator, name, context)]
            for context in self._contexts.values()
            for name, accumulator in context.accumulators.items()
        }
        self.metrics = VertexMetrics(watermark=metrics.watermark)
        return metrics


def _packed(accumulator: Accumulator, name: str, context: OperatorContext) -> bytes:
    try:
        return pack(accumulator.parts())
    except Unencodable as error:
        raise StateTypeError(
            f"the accumulator {name!r} holds a {type_name(type(error.value))}, which has no encoding: {shortened(error.value)}",
            remedy="add builtin values or numpy's",
            operator=context.name,
            location=context.user_location,
        ) from None


def _upload(
    upload: SnapshotUpload | None,
    staged: list[StagedCommittable],
    ack: SnapshotAck,
    files: StateFileWriter | None,
    state_files: StateFiles | None,
    context: OperatorContext,
    local: LocalStateFiles | None,
) -> SnapshotAck:
    """What sinks stage are files of their own; state goes where the small files of the task are put together."""
    started = time.perf_counter()
    ack.committables += [_stage(committable, ack, files) for committable in staged]
    try:
        if upload is not None and state_files is not None and not ack.error:
            with context.named_in_errors():
                if local is None:
                    ack.keyed = upload.run(state_files)
                else:
                    ack.keyed = upload.run(local.writer(state_files, ack.checkpoint_id))
                    local.note(ack.checkpoint_id, ack.keyed)
            ack.bytes_uploaded += int(ack.keyed.get("bytes_uploaded", 0))
            ack.state_bytes += sum(int(f["size"]) for f in ack.keyed.get("files", ()))
    except BaseException as error:  # the checkpoint fails, not the job
        ack.error = f"{type(error).__name__}: {error}"
        ack.error_code = error.code if isinstance(error, PenstockError) else ""
    ack.async_ms = (time.perf_counter() - started) * 1e3
    return ack


def _stage(committable: StagedCommittable, ack: SnapshotAck, files: StateFileWriter | None) -> dict[str, Any]:
    """Write the content to a file, or keep it in the committable when that fails: it belongs to the next checkpoint."""
    content = committable.content()
    if files is not None:
        try:
            ref = files.write(content)
        except Exception as error:
            ack.error = f"{type(error).__name__}: {error}"
            ack.error_code = error.code if isinstance(error, PenstockError) else ""
        else:
            ack.bytes_uploaded += ref.size
            return committable.about | {STAGED_FILE: ref.to_json()}
    return committable.about | {"content": base64.b64encode(content).decode("ascii")}
