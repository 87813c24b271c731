"""The identity of a plan's nodes. A node with the same identity in two plans can use the same state."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from penstock.sql.plan.types import SqlType

_WITHOUT_EFFECT = frozenset(
    {
        "id",
        "type",
        "description",
        "inputProperties",
        "outputType",
        "configuration",
        "state",
        "generateUpdateBefore",
        "inputChangelogMode",
    }
)
"""Parts of a node that do not change the layout of its state: names, changelog modes and TTLs."""
_NAMED = ("aggCalls", "namedWindowProperties")
"""Lists whose entries have the name of an output column."""
_TABLES = ("scanTableSource", "dynamicTableSink")


def identity_of(raw: dict[str, Any], inputs: Sequence[Sequence[SqlType]]) -> str:
    """Return the identity of a node: a digest of its kind, its settings, and the types of its input columns.

    The nodes before it are not a part of it. So a changed filter keeps the state of a later aggregate. The identity of a table is its name
    and its connector, so other options may change.

    >>> node = {"type": "stream-exec-limit_1", "id": 3, "fetch": 5}
    >>> identity_of(node, []) == identity_of({**node, "id": 4}, []) != identity_of({**node, "fetch": 6}, [])
    True
    """
    kind = raw["type"].rpartition("_")[0]
    settings: Any = {name: value for name, value in raw.items() if name not in _WITHOUT_EFFECT}
    for name in _NAMED:
        if isinstance(settings.get(name), list):
            settings[name] = [{**entry, "name": ""} for entry in settings[name]]
    for name in _TABLES:
        if name in raw:
            table = raw[name]["table"]
            options = table.get("resolvedTable", {}).get("options", {})
            settings, inputs = [table["identifier"], options.get("connector")], ()
    types = [list(map(str, columns)) for columns in inputs]
    text = json.dumps([kind, settings, types], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
