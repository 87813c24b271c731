"""Changes of a window operator that can use the previous operator's state. Pure.

Open windows keep their bounds and fire at their end, even if the assigner now creates other windows, as in Flink. This requires windows of
the same kind on the same clock. Otherwise, the bounds would change their meaning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.windowing.field_migration import FieldMigration

if TYPE_CHECKING:
    from penstock.graph.state_meaning.describe import Meaning

Changes = tuple[str, tuple[str, ...]]
"""A refusal, or the changes that must be reported."""


def compare_windows(old: Meaning, new: Meaning) -> Changes:
    """Compare the descriptions of two window operators."""
    if old["of"] != new["of"]:
        return f"the state holds windows of {old['of']}, and the program asks for windows of {new['of']}", ()
    changes: tuple[str, ...] = ()
    parts = (
        _compare_assigners(old["windows"], new["windows"]),
        _compare_contents(old["contents"], new["contents"]),
        _compare_triggers(old["trigger"], new["trigger"]),
    )
    for refusal, reported in parts:
        if refusal:
            return refusal, ()
        changes += reported
    return "", changes + _compare_lateness(old, new)


def _compare_assigners(old: Meaning, new: Meaning) -> Changes:
    if old == new:
        return "", ()
    before, after = windows_text(old), windows_text(new)
    if old["kind"] != new["kind"] or old["kind"] in ("count", "custom") or old.get("clock") != new.get("clock"):
        return f"the state holds the contents of {before}, and the program asks for {after}", ()
    if old["kind"] == "sessions":
        return "", (f"{before} became {after}: open sessions keep their end unless a new record extends them",)
    return "", (f"{before} became {after}: open windows keep their bounds and fire at their own end",)


def _compare_contents(old: Meaning, new: Meaning) -> Changes:
    if old == new:
        return "", ()
    if old["kind"] == new["kind"] == "aggregates":
        migration = FieldMigration(old["aggregates"], new["aggregates"])
        return migration.refusal, migration.changes
    if old["kind"] == new["kind"] == "accumulator":
        text = f"the aggregate function was {old['function']} and is {new['function']}"
        return "", (f"{text}: it continues from the accumulators of the former function",)
    return f"windows stored {_contents_text(old)}, and the program now stores {_contents_text(new)}", ()


def _compare_triggers(old: Meaning, new: Meaning) -> Changes:
    if old == new:
        return "", ()
    before, after = old["class"], new["class"]
    if old["custom"] or not old["stateful"]:
        return "", (
            f"the trigger {before} became {after}, which does not count records that arrived before the restore",
        )
    return f"the state has data of the trigger {before} for each window, and the trigger is {after} now", ()


def _compare_lateness(old: Meaning, new: Meaning) -> tuple[str, ...]:
    before, after = old["allowed_lateness_ms"], new["allowed_lateness_ms"]
    if before == after:
        return ()
    text = f"the allowed lateness changed from {before} ms to {after} ms"
    if after < before:
        return (f"{text}: windows that have fired and are older than that are removed without firing again",)
    return (f"{text}: windows that the old lateness has removed stay removed, and records for them are late",)


def windows_text(windows: Meaning) -> str:
    """Return the text for windows in messages.

    >>> windows_text({"kind": "time", "clock": "event time", "size_ms": 1000, "slide_ms": 1000, "offset_ms": 0})
    'tumbling event time windows of 1000 ms'
    >>> windows_text({"kind": "sessions", "clock": "event time", "gap_ms": 5})
    'event time sessions with a gap of 5 ms'
    """
    kind: Any = windows["kind"]
    if kind == "time":
        size, slide, offset = windows["size_ms"], windows["slide_ms"], windows["offset_ms"]
        shape = "tumbling" if size == slide else "sliding"
        every = "" if size == slide else f" every {slide} ms"
        shifted = f" with an offset of {offset} ms" if offset else ""
        return f"{shape} {windows['clock']} windows of {size} ms{every}{shifted}"
    if kind == "sessions":
        gap = f"a gap of {windows['gap_ms']} ms" if "gap_ms" in windows else "a gap by record"
        return f"{windows['clock']} sessions with {gap}"
    if kind == "count":
        size, slide = windows["size"], windows["slide"]
        return f"count windows of {size} records" + ("" if size == slide else f" every {slide} records")
    return "the global window" if kind == "global" else f"the windows of {windows['class']}"


def _contents_text(contents: Meaning) -> str:
    kind: Any = contents["kind"]
    if kind == "field":
        return f"{contents['aggregate']}({contents['field']!r})"
    if kind == "aggregates":
        return ", ".join(f"{name}({'' if field is None else repr(field)})" for name, field in contents["aggregates"])
    texts = {
        "elements": "all their records",
        "elements with times": "all their records for an evictor",
        "reduced": "one reduced record",
        "accumulator": f"the accumulator of {contents.get('function')}",
    }
    return texts[kind]
