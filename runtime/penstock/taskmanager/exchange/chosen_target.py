"""Exchanges that choose a subtask for each record, with the program's partitioner (`partition_custom`) or at random
(`shuffle`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from operator import index
from typing import Any, NoReturn

from penstock.common.errors import UserFunctionError
from penstock.graph.job_graph import ExchangeSpec
from penstock.records.batch import Batch
from penstock.records.fields import shortened
from penstock.taskmanager.exchange.writer import Emit, ExchangeWriter
from penstock.taskmanager.operators.user_code import position, raise_user_error, select_keys


class ChosenTargetWriter(ExchangeWriter):
    """A writer for the user's partitioner and for shuffle (uniformly random), which choose a target per record."""

    def __init__(self, spec: ExchangeSpec, sender: int, emit: Emit, choose: Callable[[list[Any]], list[int]]) -> None:
        super().__init__(spec, sender, emit)
        self._choose = choose

    def write(self, batch: Batch) -> None:
        rows = batch.rows()
        split: dict[int, tuple[list[Any], list[int]]] = {}
        stamps = rows.timestamps
        for n, (value, target) in enumerate(zip(rows.values, self._choose(rows.values), strict=True)):
            part = split.setdefault(target, ([], []))
            part[0].append(value)
            if stamps is not None:
                part[1].append(stamps[n])
        for target, (values, part_stamps) in split.items():
            self._append(target, values, None if stamps is None else part_stamps)


class Partitioner:
    """The targets that the user's partitioner chooses. An error names the record that the partitioner failed on."""

    def __init__(self, spec: ExchangeSpec) -> None:
        partitioner, selector = spec.partitioning.partitioner, spec.partitioning.key_selector
        assert partitioner is not None
        assert selector is not None
        self._spec = spec
        self._partitioner = partitioner
        self._selector = selector
        self._targets = frozenset(range(spec.parallelism))

    def __call__(self, values: list[Any]) -> list[int]:
        keys = select_keys(self._spec, self._selector, values)
        iterator = iter(keys)
        try:
            chosen = list(map(self._partitioner, iterator, repeat(self._spec.parallelism)))
        except Exception as error:
            record = shortened(values[position(keys, iterator)])
            raise_user_error(self._spec, error, f"the partitioner on {record}", "return a subtask for every key")
        try:
            is_right = self._targets.issuperset(map(index, chosen))
        except TypeError:  # a target is not a whole number
            is_right = False
        if not is_right:
            self._refuse(chosen, values)
        return chosen

    def _refuse(self, chosen: list[Any], values: list[Any]) -> NoReturn:
        partitions = len(self._targets)
        wrong = (n for n, target in enumerate(chosen) if not (hasattr(target, "__index__") and target in self._targets))
        n = next(wrong)
        raise UserFunctionError(
            f"the partitioner chose subtask {chosen[n]!r} for {shortened(values[n])}; it must return 0..{partitions - 1} "
            f"for {partitions} partitions",
            remedy="compute the subtask from the number of partitions, which is the second argument of the partitioner",
            operator=self._spec.name,
            location=self._spec.user_location,
        )
