"""One subtask of one stage: its operators with their state, its input gate, its exchange writers."""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial

from penstock.checkpoint.files.state_files import StateFileReader, StateFileWriter
from penstock.common.errors import StateTypeError
from penstock.connectors.sink import StagedCommittable
from penstock.functions.accumulators import Accumulator
from penstock.functions.operator_context import OperatorContext
from penstock.graph.job_graph import JobGraph, OperatorNode, Stage
from penstock.graph.operator import Operator
from penstock.graph.transformation import Exchange
from penstock.metrics.task import TaskMetrics
from penstock.records.batch import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch, ColumnBatch
from penstock.records.fields import shortened
from penstock.state.backend import KeyContext, KeyedStateBackend
from penstock.state.encoding.tagged import Unencodable, pack, type_name
from penstock.state.factory import create_backend, create_timer_service
from penstock.state.key_groups import key_group_range
from penstock.state.operator_state import OperatorStateStore
from penstock.taskmanager.chain import ChainedOutput
from penstock.taskmanager.exchange.input_gate import InputGate
from penstock.taskmanager.exchange.rows import Buffer, decode_latency, exchange_of
from penstock.taskmanager.exchange.writer import Emit, ExchangeWriter
from penstock.taskmanager.exchange.writers import create_writer
from penstock.taskmanager.latency import LatencyTracking
from penstock.taskmanager.local_state.files import LocalStateFiles
from penstock.taskmanager.operators.connectors.sink import SinkOperator
from penstock.taskmanager.operators.connectors.source import SourceOperator
from penstock.taskmanager.operators.factory import create_operator
from penstock.taskmanager.pace import Pace
from penstock.taskmanager.protocol import RestoreCommand, SnapshotAck, SnapshotCommand, VertexMetrics
from penstock.taskmanager.task_environment import TaskEnvironment
from penstock.taskmanager.uploads import OperatorUpload, SnapshotUploads
from penstock.taskmanager.watching.watchdog import CLOSING, OPENING, RESTORING

logger = logging.getLogger(__name__)

STATE_SIZE = "lastCheckpointStateSize"
"""Metric of an operator with keyed state: the bytes of its subtask's files in the newest checkpoint."""
_DONE = object()
_LOOK_S = 0.02
"""While an operator is full its task looks at timers and output so often."""


class Subtask:
    """Built at the first epoch of an attempt; driven by `LevelTask` from one thread."""

    def __init__(self, graph: JobGraph, stage: Stage, index: int, environment: TaskEnvironment, emit: Emit) -> None:
        self.graph = graph
        self.stage = stage
        self.index = index
        self.environment = environment
        self.metrics = VertexMetrics()
        self._told_at = time.perf_counter()
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
        self._published: set[tuple[str, str]] = set()
        """Names of queryable states that the JobManager knows, with their operators."""
        self._state_bytes: dict[int, int] = {}
        """Of each operator, in the snapshot that was written last."""
        self._writers: list[ExchangeWriter] = []
        self._writers_of: dict[int, list[ExchangeWriter]] = {}
        self._targets: dict[int, list[tuple[Operator, int]]] = {}
        self._heads: list[Operator] = []
        self._left: deque[Iterator[None]] = deque()
        """Of final watermarks that have come, what is still to be done."""
        self._pace = Pace(sys.maxsize)
        self._build(emit)
        self._at_work = [operator for operator in self._operators.values() if operator.capacity is not None]
        """Operators that go on working on records after `process_batch`."""
        self._limit_batches()
        self.gate = self._create_gate()
        self.latency = LatencyTracking(
            graph,
            stage.operators,
            self._writers_of,
            self._task_metrics,
            environment.latency_granularity,
            environment.latency_interval_ms,
        )

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
                    self._writers_of.setdefault(index, []).append(writer)
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
            self._task_metrics.operator_group(node.uid, node.name).gauge(
                STATE_SIZE, lambda: self._state_bytes.get(node.index)
            )
            context.timers = create_timer_service(backend)
            self._backends[node.index] = backend
            if environment.local_folders:
                task = f"{node.index}-{self.index}"
                self._local[node.index] = LocalStateFiles(
                    environment.local_folders, environment.job_id, environment.attempt, task
                )
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
            metrics=self._task_metrics.operator_group(node.uid, node.name),
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
            self._pace.took(end - begin, clock() - started, columns=isinstance(batch, ColumnBatch))
            begin = end
            if begin < size:
                yield

    @property
    def is_full(self) -> bool:
        """An operator has as many records at work as it can."""
        return any(operator.is_full for operator in self._at_work)

    @property
    def holds_records(self) -> bool:
        """Results may still come of what was read, without more input."""
        return any(operator.holds_records for operator in self._operators.values())

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
                left = operator.begin_watermark(watermark)
                if left:
                    self._left.append(iter(left))
        if self.gate.is_idle != was_idle:
            for operator in self._heads:
                operator.process_idle(self.gate.is_idle)

    @property
    def works_off(self) -> bool:
        """The input has ended, and not all is done that is to be done then."""
        return bool(self._left)

    def work_off(self) -> Iterator[None]:
        """Do it, in parts. Who stops between two of them may begin again later."""
        while self._left:
            if self.is_full:
                yield from self._wait_for_room()
            if next(self._left[0], _DONE) is _DONE:
                self._left.popleft()
            yield

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

    def pass_latency(self, row: bytes) -> None:
        """A latency marker has come."""
        marker = decode_latency(row)
        for target in self.graph.exchanges[exchange_of(row)].targets:
            if target.stage == self.stage.id:
                self.latency.pass_on(marker, target.operator)

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

    def backend_of(self, uid: str) -> KeyedStateBackend | None:
        """Of an operator; without what its operator has not written yet."""
        return next((backend for index, backend in self._backends.items() if self._contexts[index].uid == uid), None)

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
                work = OperatorUpload(ack, context, upload, staged, self._local.get(index))
                future = uploads.submit(partial(work.run, files, uploads.files))
                if upload is not None:
                    future.add_done_callback(partial(self._note_state_size, index))
            futures.append(future)
        return futures

    def _note_state_size(self, index: int, written: Future[SnapshotAck]) -> None:
        """From the thread of an upload."""
        if not written.cancelled() and written.exception() is None and not written.result().error:
            self._state_bytes[index] = written.result().state_bytes

    def take_metrics(self) -> VertexMetrics:
        """What happened since the last call."""
        metrics = self.metrics
        now = time.perf_counter()
        metrics.idle_ms = max(0.0, (now - self._told_at) * 1e3 - metrics.busy_ms - metrics.blocked_ms)
        self._told_at = now
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
        metrics.queryable = self._new_queryable()
        self.metrics = VertexMetrics(watermark=metrics.watermark)
        return metrics

    def _new_queryable(self) -> dict[str, list[str]]:
        found = {}
        for index, backend in self._backends.items():
            for name, state in backend.queryable.items():
                uid = self._contexts[index].uid
                if (name, uid) not in self._published:
                    self._published.add((name, uid))
                    found[name] = [uid, state]
        return found


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
