"""Comparison of a live object with the wanted object. Pure functions.

Other clients write into the operator's objects too. An admission webhook injects a variable, the API server fills in
defaults, or a user adds a volume. Server-side apply does not touch such fields, so they do not count as differences here.
Otherwise the operator would repeat an apply without effect forever. Lists of items with a key are compared by that
key, as in an apply. Other lists are compared as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock_operator.api.validation import quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

MERGE_KEYS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "containers": (("name",),),
    "initContainers": (("name",),),
    "env": (("name",),),
    "volumes": (("name",),),
    "volumeMounts": (("mountPath",),),
    "volumeDevices": (("devicePath",),),
    "imagePullSecrets": (("name",),),
    "ports": (("containerPort", "protocol"), ("port", "protocol", "targetPort")),
    "hostAliases": (("ip",),),
    "topologySpreadConstraints": (("topologyKey", "whenUnsatisfiable"),),
    "ownerReferences": (("uid",),),
}
"""Keys of the items by field, for lists whose items have keys (`x-kubernetes-list-map-keys` in Kubernetes' OpenAPI
document).

The ports of a NetworkPolicy have no `targetPort`. Their list is a single value, so an added port is a difference.
"""

_DEFAULTS = {"protocol": "TCP"}
_CAN_BE_EMPTY = frozenset({type(None), str, bool, int, dict, list})


def difference(wanted: Any, live: Any, path: str = "") -> str | None:
    """Return the path of the first field of `wanted` that is missing or different in `live`. Return None if there is no
    such field.

    >>> difference({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "B"}, {"name": "A", "value": "1"}]})
    >>> difference({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "A", "value": "2"}]})
    'env[A].value'
    """
    if wanted == live or (_is_empty(wanted) and _is_empty(live)):
        return None
    if isinstance(wanted, dict):
        return _of_maps(wanted, live, path)
    if isinstance(wanted, list):
        return _of_lists(wanted, live, path)
    return None if _same_quantity(wanted, live) else path


def _of_maps(wanted: dict[str, Any], live: Any, path: str) -> str | None:
    if not isinstance(live, dict):
        return path
    found = (difference(value, live.get(key), f"{path}.{key}" if path else key) for key, value in wanted.items())
    return next((where for where in found if where is not None), None)


def _of_lists(wanted: list[Any], live: Any, path: str) -> str | None:
    if not isinstance(live, list):
        return path
    keys = _keys(path.rpartition(".")[2], wanted)
    if keys is None:
        if len(wanted) != len(live):
            return path
        found = (difference(w, v, f"{path}[{i}]") for i, (w, v) in enumerate(zip(wanted, live, strict=True)))
        return next((where for where in found if where is not None), None)
    theirs = {_key(item, keys): item for item in live if isinstance(item, dict)}
    for item in wanted:
        key = _key(item, keys)
        where = difference(item, theirs.get(key), f"{path}[{key[0]}]")
        if where is not None:
            return where
    return None


def _keys(field: str, items: list[Any]) -> tuple[str, ...] | None:
    for keys in MERGE_KEYS.get(field, ()):
        if items and all(
            isinstance(item, dict) and keys[0] in item and keys[-1] in {*item, *_DEFAULTS} for item in items
        ):
            return keys
    return None


def _key(item: dict[str, Any], keys: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(item.get(key, _DEFAULTS.get(key)) for key in keys)


def _is_empty(value: Any) -> bool:
    return not value and type(value) in _CAN_BE_EMPTY


def _same_quantity(wanted: object, live: object) -> bool:
    try:
        return quantity(str(wanted)) == quantity(str(live))
    except (ValueError, KeyError):
        return False
