"""Migration of accumulators from one `FieldAggregate` to another. Pure.

An accumulator keeps the number of records. For each field it keeps the number of values, their sum and their extremes,
if the aggregates need them (`aggregates.Stats`). It has no field names: the order of the fields in the aggregate
defines which field a value belongs to. A program with other aggregates must therefore convert the accumulators. Fields
are matched by name, and new fields start empty.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.windowing.aggregates import COUNT, MAX, MIN, NO_STATS, RECORDS, SUM, FieldAggregate

if TYPE_CHECKING:
    from collections.abc import Sequence

Part = tuple[Any, Any]
"""Kind and field of an aggregate."""
_SUMMED = frozenset({"sum", "mean"})


class FieldMigration:
    """The conversion of the accumulators of old aggregates to accumulators of new ones.

    Args:
        old: kind and field of each aggregate for which the accumulators were created.
        new: kind and field of each aggregate of the program.

    >>> swapped = FieldMigration([("sum", "a"), ("sum", "b")], [("sum", "b"), ("max", "a"), ("sum", "a")])
    >>> swapped.changes
    ("max('a') is new and starts empty",)
    >>> swapped.migrate(((2, 2, 30, None, None), (2, 1, 5, None, None)))
    ((2, 1, 5, None, None), (2, 2, 30, None, None))
    """

    def __init__(self, old: Sequence[Sequence[Any]], new: Sequence[Sequence[Any]]) -> None:
        self._old_parts: list[Part] = [(kind, field) for kind, field in old]
        self._new_parts: list[Part] = [(kind, field) for kind, field in new]
        self._old, self._new = FieldAggregate(self._old_parts), FieldAggregate(self._new_parts)

    @property
    def is_needed(self) -> bool:
        """Whether accumulators of the old and the new aggregates differ."""
        return (self._old.fields, self._old.needs) != (self._new.fields, self._new.needs)

    @cached_property
    def refusal(self) -> str:
        """Reason why the conversion is impossible, as the end of a sentence; empty if the conversion is possible."""
        kept = [part for part in self._new_parts if self._continues(part)]
        if not kept:
            before, after = _listed(self._old_parts), _listed(self._new_parts)
            return f"the state has {before} of every key, which {after} cannot use"
        for kind, field in self._new_parts:
            if kind == "mean" and not self._continues((kind, field)) and field in self._old.fields:
                beside = _listed([part for part in self._old_parts if part[1] == field])
                return (
                    f"{_text((kind, field))} is new, and the state has only {beside} of this field. The mean needs a sum and a count from the same time on: "
                    "compute it in a separate aggregate operator"
                )
        return ""

    @cached_property
    def changes(self) -> tuple[str, ...]:
        """Changes that a user must know: aggregates that start empty, and aggregates whose state is dropped."""
        if self.refusal:
            return ()
        started = [f"{_text(p)} is new and starts empty" for p in self._new_parts if not self._continues(p)]
        dropped = [f"{_text(p)} was removed, so its state is dropped" for p in self._old_parts if not self._is_kept(p)]
        return (*started, *dropped)

    def migrate(self, accumulator: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the accumulator with which the new aggregates continue."""
        is_single = len(self._old.fields) == 1
        stats = dict(zip(self._old.fields, (accumulator,) if is_single else accumulator, strict=True))
        records = accumulator[RECORDS] if is_single else accumulator[0][RECORDS]
        found = tuple([self._stats_of(field, stats.get(field), records) for field in self._new.fields])
        return found[0] if len(found) == 1 else found

    def _stats_of(self, field: Any, old: Any, records: int) -> tuple[Any, ...]:
        if old is None:
            return (records, records if field is None else 0, *NO_STATS[SUM:])
        had, needs = self._needs(self._old, field), self._needs(self._new, field)
        return (
            old[RECORDS],
            old[COUNT],
            old[SUM] if had & _SUMMED and needs & _SUMMED else NO_STATS[SUM],
            old[MIN] if "min" in had & needs else None,
            old[MAX] if "max" in had & needs else None,
        )

    @staticmethod
    def _needs(aggregate: FieldAggregate, field: Any) -> frozenset[str]:
        return aggregate.needs[aggregate.fields.index(field)]

    def _continues(self, part: Part) -> bool:
        """Return whether the old accumulators have all values that the new aggregate needs."""
        kind, field = part
        if field is None:
            return True  # records are always counted
        if field not in self._old.fields:
            return False
        had = self._needs(self._old, field)
        return kind == "count" or (bool(had & _SUMMED) if kind in _SUMMED else kind in had)

    def _is_kept(self, part: Part) -> bool:
        kind, field = part
        if field is None or kind == "count":
            return field is None or field in self._new.fields
        if field not in self._new.fields:
            return False
        needs = self._needs(self._new, field)
        return bool(needs & _SUMMED) if kind in _SUMMED else kind in needs


def _text(part: Part) -> str:
    kind, field = part
    return f"{kind}({'' if field is None else repr(field)})"


def _listed(parts: Sequence[Part]) -> str:
    return ", ".join(map(_text, parts))
