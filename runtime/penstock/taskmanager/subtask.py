"""One subtask of one stage: its operators with their state, its input gate and its exchange writers."""

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
from penstock.connectors.core.sink import StagedCommittable
from penstock.functions.operator_context import OperatorContext
from penstock.graph.job_graph import JobGraph, OperatorNode, Stage
from penstock.graph.operator import Operator
from penstock.graph.transformation import Exchange
from penstock.records.batch import Batch, ColumnBatch
from penstock.state.backend import KeyedStateBackend
from penstock.state.factory import create_backend, create_timer_service
from penstock.state.key_context import KeyContext
from penstock.state.key_groups import key_group_range
from penstock.state.operator_state import OperatorStateStore
from penstock.taskmanager.chain import ChainedOutput
from penstock.taskmanager.exchange.input_gate import InputGate
from penstock.taskmanager.exchange.rows import Buffer, decode_latency, exchange_of
from penstock.taskmanager.exchange.writer import Emit, ExchangeWriter
from penstock.taskmanager.exchange.writers import create_writer
from penstock.taskmanager.local_state.files import LocalStateFiles
from penstock.taskmanager.operators.connectors.sink import SinkOperator
from penstock.taskmanager.operators.connectors.source import SourceOperator
from penstock.taskmanager.operators.factory import create_operator
from penstock.taskmanager.pace import Pace
from penstock.taskmanager.protocol import RestoreCommand, SnapshotAck, SnapshotCommand, VertexMetrics
from penstock.taskmanager.task_environment import TaskEnvironment
from penstock.taskmanager.uploads import OperatorUpload, SnapshotUploads
from penstock.taskmanager.watching.latency import LatencyTracking
from penstock.taskmanager.watching.subtask_metrics import MetricsCollector, task_metrics
from penstock.taskmanager.watching.watchdog import CLOSING, OPENING, RESTORING

logger = logging.getLogger(__name__)

STATE_SIZE = "lastCheckpointStateSize"
"""Metric of an operator with keyed state: the bytes of its subtask's files in the newest checkpoint."""
_DONE = object()
_POLL_S = 0.02
"""Seconds between two checks of timers and output while an operator is full."""


class Subtask:
    """A subtask. The first epoch of an attempt creates it, and `LevelTask` drives it from one thread."""

    def __init__(self, graph: JobGraph, stage: Stage, index: int, environment: TaskEnvironment, emit: Emit) -> None:
        self.graph = graph
        self.stage = stage
        self.index = index
        self.environment = environment
        self.metrics = VertexMetrics()
        self._task_metrics = task_metrics(stage, index, environment)
        self.sources: dict[str, SourceOperator] = {}
        self._contexts: dict[int, OperatorContext] = {}
        self._operators: dict[int, Operator] = {}
        self._backends: dict[int, KeyedStateBackend] = {}
        self._local: dict[int, LocalStateFiles] = {}
        self._state_bytes: dict[int, int] = {}
        """Bytes of each operator's state in the last snapshot whose files were written."""
        self._writers: list[ExchangeWriter] = []
        self._writers_of: dict[int, list[ExchangeWriter]] = {}
        self._targets: dict[int, list[tuple[Operator, int]]] = {}
        self._heads: list[Operator] = []
        self._unfinished: deque[Iterator[None]] = deque()
        """Work that remains after a final watermark has arrived."""
        self._pace = Pace(sys.maxsize)
        self._build(emit)
        self._at_work = [operator for operator in self._operators.values() if operator.capacity is not None]
        """Operators that continue to work on records after `process_batch`."""
        self._limit_batches()
        self._collector = MetricsCollector(
            self._writers, self._outputs, self.sources, self._contexts, self._backends, self._task_metrics
        )
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
        """Limit the size of batches, so that an operator with limited capacity does not get many times its capacity."""
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
        channels, timeless = [], set()
        for exchange_id in self.stage.inputs:
            spec = self.graph.exchanges[exchange_id]
            is_forward = spec.partitioning.exchange is Exchange.FORWARD
            senders = [self.index] if is_forward else range(spec.source_parallelism)
            found = [(exchange_id, sender) for sender in senders]
            channels += found
            source = self.graph.operators[self.graph.stages[spec.source_stage].operators[0]].source
            if source is not None and source.excluded_from_watermarks:
                timeless.update(found)
        return InputGate(channels, timeless)

    # --- life cycle -------------------------------------------------------------------------------------------

    def restore(self, command: RestoreCommand, files: StateFileReader) -> None:
        for index, context in self._contexts.items():
            state = command.subtasks.get(context.uid)
            if state is None:
                continue
            context.is_restored = True
            context.restored_meaning = state.meaning
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
                        logger.info(
                            "%s: %d state files came from the local disk and %d from storage",
                            node.name,
                            local.used,
                            local.fetched,
                        )

    def open(self) -> None:
        """Open the operators, downstream operators first, so that they can receive what an operator emits in `open`."""
        for index in reversed(self.stage.operators):
            with self._step(OPENING, self._contexts[index]):
                self._operators[index].open()

    @contextmanager
    def _step(self, name: str, context: OperatorContext) -> Iterator[None]:
        with context.named_in_errors(), self.environment.watchdog.step(name, context.name, context.user_location):
            yield

    def close(self) -> None:
        """Close every operator, even if other operators raise, then close the state.

        Raises:
            BaseException: the first error that an operator raised.
        """
        first: BaseException | None = None
        for index, operator in self._operators.items():
            try:
                with self._step(CLOSING, self._contexts[index]):
                    operator.close()
            except BaseException as error:
                if first is not None:
                    logger.warning("%s also failed to close", self._contexts[index].name, exc_info=error)
                first = first or error
        for backend in self._backends.values():
            backend.close()
        for local in self._local.values():
            local.close()
        if first is not None:
            raise first

    # --- processing -------------------------------------------------------------------------------------------

    def process_parts(self, buffer: Buffer) -> Iterator[None]:
        """Process a buffer in parts, and yield after each part. A part takes at most the time of a batch."""
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
                yield from self._wait_for_capacity()
            end = min(begin + self._pace.records, size)
            part = batch if end - begin == size else batch.slice(begin, end)
            started = clock()
            for operator, input_index in targets:
                operator.process_batch(part, input_index)
            self._pace.record_batch(end - begin, clock() - started, columns=isinstance(batch, ColumnBatch))
            begin = end
            if begin < size:
                yield

    @property
    def is_full(self) -> bool:
        """Return whether an operator already works on as many records as it can."""
        return any(operator.is_full for operator in self._at_work)

    @property
    def holds_records(self) -> bool:
        """Return whether records that were read may still produce results without more input."""
        return any(operator.holds_records for operator in self._operators.values())

    def take_finished(self) -> None:
        """Emit the results that operators have finished since `process_batch`."""
        for operator in self._at_work:
            operator.take_finished()

    def _wait_for_capacity(self) -> Iterator[None]:
        """Wait until no operator is full. Yield repeatedly, so that the caller can handle timers and output. The waiting time does not count as busy."""
        while self.is_full:
            started = time.perf_counter()
            if self.environment.waker.wait(_POLL_S):
                self.environment.waker.take()  # else the next wait would return immediately
            waited_ms = (time.perf_counter() - started) * 1e3
            self.metrics.busy_ms -= waited_ms
            self.metrics.blocked_ms += waited_ms
            self.take_finished()
            yield

    def _advance(self, buffer: Buffer) -> None:
        """Apply the watermark of a buffer after its records are processed."""
        assert self.gate is not None
        was_idle = self.gate.is_idle
        watermark = self.gate.advance(buffer)
        if watermark is not None:
            self.metrics.watermark = watermark
            for operator in self._heads:
                remaining = operator.begin_watermark(watermark)
                if remaining:
                    self._unfinished.append(iter(remaining))
        if self.gate.is_idle != was_idle:
            for operator in self._heads:
                operator.process_idle(self.gate.is_idle)

    @property
    def has_remaining_work(self) -> bool:
        """Return whether the input has ended, but work that follows its end remains."""
        return bool(self._unfinished)

    def process_remaining(self) -> Iterator[None]:
        """Do the work that remains after the end of the input, in parts. A later call continues."""
        while self._unfinished:
            if self.is_full:
                yield from self._wait_for_capacity()
            if next(self._unfinished[0], _DONE) is _DONE:
                self._unfinished.popleft()
            yield

    def _batch(self, buffer: Buffer) -> Batch | None:
        try:
            return buffer.batch()
        except Exception as error:
            sender = self.graph.exchanges[buffer.exchange]
            raise StateTypeError(
                f"records that were sent to another subtask cannot be created there: {type(error).__name__}: {error}",
                remedy="let pickle restore the object: give its class a __reduce__ or __getstate__ method, or send plain "
                "values",
                operator=sender.name,
                location=sender.user_location,
            ) from error

    def pass_latency(self, row: bytes) -> None:
        """Pass on a latency marker that has arrived."""
        marker = decode_latency(row)
        for target in self.graph.exchanges[exchange_of(row)].targets:
            if target.stage == self.stage.id:
                self.latency.record_marker(marker, target.operator)

    def drain_gate(self) -> Iterator[None]:
        """Process the waiting buffers in watermark order. Yield after each part, so that the caller can send output."""
        assert self.gate is not None
        for buffer in self.gate.drain():
            yield from self.process_parts(buffer)

    def advance_processing_time(self, now: int) -> None:
        for operator in self._operators.values():
            operator.advance_processing_time(now)

    def emit_periodic_watermarks(self) -> None:
        """Emit periodic watermarks before their time (tests on a manual clock)."""
        for operator in self._operators.values():
            operator.emit_periodic_watermark()

    def keyed_backends(self) -> dict[str, KeyedStateBackend]:
        """Return the keyed state by uid, after the operators have written everything that belongs to it."""
        for index in self._backends:
            self._operators[index].write_state()
        return {self._contexts[index].uid: backend for index, backend in self._backends.items()}

    def output_of(self, uid: str) -> ChainedOutput | None:
        """Return the output of an operator of this subtask."""
        return next((output for index, output in self._outputs.items() if self.graph.operators[index].uid == uid), None)

    def backend_of(self, uid: str) -> KeyedStateBackend | None:
        """Return an operator's state backend, without values that the operator has not written yet."""
        return next((backend for index, backend in self._backends.items() if self._contexts[index].uid == uid), None)

    def watermarks(self) -> dict[str, int]:
        """Return each operator's event-time clock in ms, by uid."""
        return {self._contexts[index].uid: o.current_watermark() for index, o in self._operators.items()}

    @property
    def is_idle(self) -> bool:
        """Return whether the subtask does not hold event time back: its inputs are idle, or it has no splits."""
        if self.gate is not None:
            return self.gate.is_idle
        return all(source.is_idle for source in self.sources.values())

    def next_processing_time(self) -> int | None:
        times = [t for t in (o.next_processing_time() for o in self._operators.values()) if t is not None]
        return min(times, default=None)

    def next_wake(self) -> int | None:
        """Return when (ms) `advance_processing_time` next has work, or None if only input brings work."""
        times = [t for t in (o.next_wake() for o in self._operators.values()) if t is not None]
        return min(times, default=None)

    @property
    def has_unflushed(self) -> bool:
        """Return whether records or a watermark wait for a flush."""
        return any(writer.has_unflushed for writer in self._writers)

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
        """Freeze every operator's state now. `uploads` writes the files."""
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
                    future.add_done_callback(partial(self._record_state_size, index))
            futures.append(future)
        return futures

    def _record_state_size(self, index: int, written: Future[SnapshotAck]) -> None:
        """Store the size of the state. The thread of an upload calls this method."""
        if not written.cancelled() and written.exception() is None and not written.result().error:
            self._state_bytes[index] = written.result().state_bytes

    def take_metrics(self) -> VertexMetrics:
        """Return the metrics since the last call."""
        metrics = self._collector.complete(self.metrics)
        self.metrics = VertexMetrics(watermark=metrics.watermark)
        return metrics
