"""`OperatorHarness`: one operator alone, in any number of subtasks, without exchanges and epochs."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from penstock.common.errors import InvalidJob
from penstock.common.program.user_location import user_location
from penstock.common.type_info.type_inference import to_type_info
from penstock.functions.output_tag import OutputTag
from penstock.functions.process_functions import KeyedProcessFunction, ProcessFunction
from penstock.graph.operator import Operator
from penstock.records.batch import MAX_TIMESTAMP
from penstock.state.key_groups import key_group, subtask_for_key_group
from penstock.taskmanager.code.pickler import dumps
from penstock.taskmanager.operators.process import KeyedProcessOperator, ProcessOperator
from penstock.taskmanager.operators.user_code import refuse_key, select_keys
from penstock.testing.operator_run import Files, ManualClock, OperatorRun, Snapshot
from penstock.testing.outputs import Record


@dataclass(frozen=True)
class OperatorHarnessSnapshot:
    """The snapshots of all subtasks of an operator."""

    subtasks: list[Snapshot]


class OperatorHarness:
    """A test of one operator. If the test passes a process function, the harness creates the operator.

    Args:
        operator: an operator of `penstock.taskmanager.operators`, a ProcessFunction or a KeyedProcessFunction.
        key_selector: value -> key, for a KeyedProcessFunction.
        key_type: type of keys that are dataclasses, NamedTuples or Enums.
        backend: `hashmap` or `rocksdb`.
        start_time: initial time of the clock (ms).

    >>> from penstock.taskmanager.operators.aggregate.reduce import ReduceOperator
    >>> sums = ReduceOperator(lambda a, b: (a[0], a[1] + b[1]), lambda pair: pair[0])
    >>> with OperatorHarness(sums) as harness:
    ...     harness.push(("a", 1), ("b", 2), ("a", 3))
    ...     snapshot = harness.snapshot()
    ...     harness.restore(snapshot, parallelism=3)
    ...     harness.push(("a", 10))
    ...     harness.outputs()
    [('a', 1), ('b', 2), ('a', 4), ('a', 14)]
    """

    def __init__(
        self,
        operator: Operator | ProcessFunction | KeyedProcessFunction,
        key_selector: Callable[[Any], Any] | None = None,
        key_type: Any = None,
        *,
        parallelism: int = 1,
        max_parallelism: int = 128,
        backend: str = "hashmap",
        start_time: int = 0,
        job_parameters: dict[str, str] | None = None,
    ) -> None:
        self.clock = ManualClock(start_time)
        self._max_parallelism = max_parallelism
        self._backend = backend
        self._job_parameters = job_parameters
        self._key_selector = key_selector
        self._key_type = key_type
        self._outputs: list[Record] = []
        self._sides: dict[str, list[Record]] = defaultdict(list)
        self._watermarks: list[int] = []
        self._next = 0
        self._user_location = user_location()
        self._pickled = self._prepare(operator)
        self._runs = self._open(parallelism, None)

    def _prepare(self, operator: Operator | ProcessFunction | KeyedProcessFunction) -> bytes:
        prepared = _operator_of(operator, self._key_selector)
        if self._key_type is not None:
            prepared.key_type = to_type_info(self._key_type)
        return dumps(prepared)

    def _open(self, parallelism: int, snapshot: OperatorHarnessSnapshot | None) -> list[OperatorRun]:
        return [
            OperatorRun(
                pickle.loads(self._pickled),
                clock=self.clock,
                subtask=subtask,
                parallelism=parallelism,
                max_parallelism=self._max_parallelism,
                backend=self._backend,
                job_parameters=self._job_parameters,
                restored_from=None if snapshot is None else snapshot.subtasks,
                user_location=self._user_location,
            )
            for subtask in range(parallelism)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for run in self._runs:
            run.close()
        self._runs = []

    # --- input ------------------------------------------------------------------------------------------------

    def push(
        self, *values: Any, timestamp: int | list[int] | None = None, input_index: int = 0, subtask: int | None = None
    ) -> None:
        """Push one batch of records.

        Args:
            timestamp: event time (ms) of all records, or a list with the event time of each record.
            input_index: 1 for the second input of a two-input operator.
            subtask: target of the records. None means that the key selects the target. Without keys, the subtasks
                receive the records round robin. The broadcast input of a keyed operator goes to all subtasks.
        """
        stamps = [timestamp] * len(values) if isinstance(timestamp, int) else timestamp
        batches: dict[int, list[int]] = defaultdict(list)
        for position, value in enumerate(values):
            for target in self._targets(value, input_index) if subtask is None else [subtask]:
                batches[target].append(position)
        for target, positions in batches.items():
            part = None if stamps is None else [stamps[position] for position in positions]
            self._runs[target].push(*[values[position] for position in positions], at=part, to=input_index)
        self._gather()

    def _targets(self, value: Any, input_index: int) -> list[int]:
        parallelism = len(self._runs)
        operator = self._runs[0].operator
        if operator.is_keyed:
            selector = operator.key_selectors[input_index]
            if selector is None:
                return list(range(parallelism))
            (key,) = select_keys(self._runs[0].context, selector, [value])
            refuse_key(self._runs[0].context, key, value)
            group = key_group(key, self._max_parallelism)
            return [subtask_for_key_group(group, parallelism, self._max_parallelism)]
        self._next += 1
        return [(self._next - 1) % parallelism]

    def advance_watermark(self, timestamp: int) -> None:
        """Move event time to `timestamp` (ms) in all subtasks."""
        for run in self._runs:
            run.watermark(timestamp)
        self._gather()

    def advance_processing_time(self, to: int) -> None:
        """Move the clock to `to` (ms), and stop at every timer before that time."""
        while True:
            dues = [due for run in self._runs if (due := run.operator.next_processing_time()) is not None and due <= to]
            now = max(self.clock.now, min(dues, default=to))
            for run in self._runs:
                run.at_time(now)
            self._gather()
            if not dues:
                return

    def end(self) -> None:
        """End a bounded input: send the final watermark, then call `finish`."""
        self.advance_watermark(MAX_TIMESTAMP)
        for run in self._runs:
            run.operator.finish()
        self._gather()

    # --- output -----------------------------------------------------------------------------------------------

    def _gather(self) -> None:
        for subtask, run in enumerate(self._runs):
            output = run.output
            self._outputs.extend(output.records)
            if subtask == 0:
                self._watermarks.extend(output.watermarks)
            for tag, records in output.sides.items():
                self._sides[tag].extend(records)
            for taken in (output.records, output.watermarks, output.events, output.batches):
                taken.clear()
            output.sides.clear()

    def outputs(self) -> list[Any]:
        """Return the values of the main output so far."""
        return [value for value, _ in self._outputs]

    def outputs_with_timestamps(self) -> list[Record]:
        """Return the values of `outputs`, each with its event time (ms) or None."""
        return list(self._outputs)

    def side_outputs(self, tag: OutputTag | str) -> list[Any]:
        """Return the values of a side output so far."""
        return [value for value, _ in self._sides.get(tag if isinstance(tag, str) else tag.tag_id, ())]

    def watermarks(self) -> list[int]:
        """Return the watermarks (ms) that the first subtask emitted."""
        return list(self._watermarks)

    def take(self) -> list[Any]:
        """Return the values of the main output since the last call, and remove them from `outputs`."""
        taken, self._outputs = self._outputs, []
        return [value for value, _ in taken]

    # --- state ------------------------------------------------------------------------------------------------

    def state_size(self) -> int:
        """Return the number of entries of keyed state in all subtasks."""
        return sum(run.backend.entry_count() for run in self._runs if run.backend is not None)

    def snapshot(self) -> OperatorHarnessSnapshot:
        """Return the state of all subtasks. The operator continues."""
        files = Files()
        return OperatorHarnessSnapshot([run.snapshot(files) for run in self._runs])

    def restore(
        self,
        snapshot: OperatorHarnessSnapshot,
        parallelism: int | None = None,
        operator: Operator | ProcessFunction | KeyedProcessFunction | None = None,
    ) -> None:
        """Close the running subtasks.

        Start the same operator, or a new version of it, from the snapshot at any parallelism.
        """
        parallelism = len(self._runs) if parallelism is None else parallelism
        self.close()
        if operator is not None:
            self._pickled = self._prepare(operator)
        self._runs = self._open(parallelism, snapshot)
        self._gather()


def _operator_of(
    operator: Operator | ProcessFunction | KeyedProcessFunction, key_selector: Callable[[Any], Any] | None
) -> Operator:
    if isinstance(operator, Operator):
        return operator
    if key_selector is not None:
        return KeyedProcessOperator(operator, key_selector)
    if isinstance(operator, KeyedProcessFunction):
        raise InvalidJob(
            f"{type(operator).__name__} is a KeyedProcessFunction, but the harness has no key",
            remedy="give key_selector",
        )
    return ProcessOperator(operator)
