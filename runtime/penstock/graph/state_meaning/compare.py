"""Comparison of two meanings of an operator's state: in the program that wrote the state, and in the current program. Pure.

The result is a refusal, or a list of changes that people must know. If the meaning is unchanged, the result has neither. The operator's
class (`penstock.taskmanager.operators`) handles changed state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.graph.state_meaning.describe import FUNCTION, STATELESS, VERSION
from penstock.graph.state_meaning.window_changes import compare_windows
from penstock.windowing.field_migration import FieldMigration

if TYPE_CHECKING:
    from penstock.graph.state_meaning.describe import Meaning


@dataclass(frozen=True)
class Comparison:
    """The result of the comparison for the state of one operator.

    Attributes:
        refusal: why the operator cannot use the state, as the end of a sentence; empty if it can.
        changes: one sentence for each change, with its effect on the stored state.
        is_newer: the refusal is about a version of Penstock, not about the program.
    """

    refusal: str = ""
    changes: tuple[str, ...] = ()
    is_newer: bool = False


def compare(old: Meaning, new: Meaning) -> Comparison:
    """Compare the description in a snapshot with the description of the current program.

    >>> reduce = {"version": 1, "kind": "reduce", "keyed": True}
    >>> compare(reduce, reduce)
    Comparison(refusal='', changes=(), is_newer=False)
    >>> compare(reduce, {**reduce, "kind": "interval join", "lower_ms": 0, "upper_ms": 1}).refusal
    'the state belongs to a reduce, and the operator is an interval join now'
    """
    if old == new:
        return Comparison()
    version = old.get("version", 0)
    if version > VERSION:
        return Comparison(
            f"the state has the layout version {version} of a newer Penstock, but this version reads versions up to {VERSION}",
            is_newer=True,
        )
    if old["kind"] != new["kind"]:
        return Comparison(f"the state belongs to {_noun(old)}, and the operator is {_noun(new)} now")
    if old["keyed"] and not new["keyed"]:
        return Comparison("the state is kept by key, but the operator has no key now")
    keys = _compare_keys(old, new)
    if keys:
        return Comparison(keys)
    return _compare_details(old, new)


def _compare_keys(old: Meaning, new: Meaning) -> str:
    """Compare the keys. A name is never compared with a position, because both may mean the same field."""
    for before, after in zip(old.get("keys", ()), new.get("keys", ()), strict=False):
        if before is not None and after is not None and before != after and type(before) is type(after):
            return (
                f"the state is kept by the field {before!r}, and the program keys by the field {after!r} (if it is the same "
                f"field under another name, key by a function: key_by(lambda record: ...))"
            )
    return ""


def _compare_details(old: Meaning, new: Meaning) -> Comparison:
    kind = new["kind"]
    if kind in ("source", "sink"):
        return _compare_connectors(old, new)
    if kind == "rolling field":
        return _compare_field(old, new)
    if kind == "rolling aggregates":
        migration = FieldMigration(old["aggregates"], new["aggregates"])
        return Comparison(migration.refusal, migration.changes)
    if kind == "window":
        return Comparison(*compare_windows(old, new))
    if kind == "interval join":
        return _compare_intervals(old, new)
    if kind == "as-of join" and old["tolerance_ms"] != new["tolerance_ms"]:
        return Comparison(
            changes=(
                f"the tolerance changed from {_ms(old['tolerance_ms'])} to {_ms(new['tolerance_ms'])}: values that the old "
                "tolerance has dropped stay dropped",
            )
        )
    return Comparison()


def _compare_connectors(old: Meaning, new: Meaning) -> Comparison:
    if old["connector"] != new["connector"]:
        return Comparison(
            f"the state belongs to the connector {old['connector']}, and the operator uses {new['connector']} now"
        )
    if old.get("storage", "") != new.get("storage", ""):
        return Comparison(
            f"the state names unfinished files in {old['storage']}, and the sink writes to {new['storage']} now"
        )
    if old.get("format") != new.get("format"):
        text = f"the format changed from {old.get('format')} to {new.get('format')}"
        return Comparison(
            changes=(
                f"{text}: open files are finished in the old format, and new records go to files of the new format",
            )
        )
    return Comparison()


def _compare_field(old: Meaning, new: Meaning) -> Comparison:
    before, after = f"{old['aggregate']}({old['field']!r})", f"{new['aggregate']}({new['field']!r})"
    if before == after:
        return Comparison()
    return Comparison(f"the state holds {before} of every key, and the program asks for {after}")


def _compare_intervals(old: Meaning, new: Meaning) -> Comparison:
    before, after = (old["lower_ms"], old["upper_ms"]), (new["lower_ms"], new["upper_ms"])
    if before == after:
        return Comparison()
    text = (
        f"the interval changed from {list(before)} ms to {list(after)} ms: the new one applies to the values in state"
    )
    if new["lower_ms"] < old["lower_ms"] or new["upper_ms"] > old["upper_ms"]:
        text += "; values that the old interval has dropped stay dropped"
    return Comparison(changes=(text,))


def _noun(meaning: Meaning) -> str:
    kind: Any = meaning["kind"]
    if kind == FUNCTION:
        return f"the function {' and '.join(meaning['functions'])}"
    if kind == STATELESS:
        return "an operator without state"
    return f"an {kind}" if kind[0] in "aeio" else f"a {kind}"


def _ms(length: int | None) -> str:
    return "none" if length is None else f"{length} ms"
