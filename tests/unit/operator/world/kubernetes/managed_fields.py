"""Server-side apply, as far as the tests need it: the fields that one manager applies, and the additions of others."""

from __future__ import annotations

import pickle
from typing import Any

KEYS = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
    "ownerReferences": "uid",
}
"""Lists whose items the API server distinguishes by a key.

It also distinguishes the ports of containers and Services.
"""


def applied(live: Any, before: Any, wanted: Any, field: str = "") -> Any:
    """Return `live` after a manager that had applied `before` applies `wanted` by force.

    Fields that the manager no longer names are removed. Fields that it names get its values. Additions of others
    remain.
    """
    if isinstance(wanted, dict):
        mine, kept = before if isinstance(before, dict) else {}, dict(live) if isinstance(live, dict) else {}
        for key in mine.keys() - wanted.keys():
            kept[key] = _without(kept.get(key), mine[key], key)
            if kept[key] in (None, {}, []):
                kept.pop(key)
        return kept | {key: applied(kept.get(key), mine.get(key), value, key) for key, value in wanted.items()}
    key = _key(field, wanted)
    if key is None:
        return clone(wanted)
    theirs = {item.get(key): item for item in live or ()}
    mine = {item.get(key): item for item in before or ()}
    named = {item[key]: item for item in wanted}
    merged = [applied(theirs.get(name), mine.get(name), item) for name, item in named.items()]
    return merged + [item for name, item in theirs.items() if name not in named and name not in mine]


def _without(live: Any, mine: Any, field: str) -> Any:
    if isinstance(live, dict) and isinstance(mine, dict):
        left = {key: _without(value, mine[key], key) if key in mine else value for key, value in live.items()}
        return {key: value for key, value in left.items() if key not in mine or value not in (None, {}, [])}
    key = _key(field, mine)
    if key is not None and isinstance(live, list):
        names = {item[key] for item in mine}
        return [item for item in live if item.get(key) not in names]
    return None


def _key(field: str, items: Any) -> str | None:
    if not isinstance(items, list) or not items or not all(isinstance(item, dict) for item in items):
        return None
    key = KEYS.get(field)
    if field == "ports":
        key = next((k for k in ("containerPort", "port") if k in items[0]), None)
    return key if key is not None and all(key in item for item in items) else None


def clone(manifest: Any) -> Any:
    """Return a deep copy of JSON, several times faster than `copy.deepcopy`."""
    return pickle.loads(pickle.dumps(manifest, pickle.HIGHEST_PROTOCOL))
