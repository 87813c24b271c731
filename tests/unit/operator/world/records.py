"""Worlds as JSON: the cluster, the store and the jobs at one moment, from which a later operator can continue.

A record contains everything that the operator can read: objects with their status, the content of storage, and the jobs
in the masters' pods. It contains no events and callbacks. Objects are stored once under their hash, because most of
them are the same at every moment.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from penstock_operator.engine.account import Request, Rescaled
from tests.unit.operator.world.engine import FakeJob, Pending
from tests.unit.operator.world.kubernetes.deployments import ReplicaSet
from tests.unit.operator.world.kubernetes.images import Image
from tests.unit.operator.world.sink import Sink
from tests.unit.operator.world.storage import Stored
from tests.unit.operator.world.world import World

if TYPE_CHECKING:
    from collections.abc import MutableMapping

_TYPES = {t.__name__: t for t in (FakeJob, Image, Pending, ReplicaSet, Request, Rescaled, Sink, Stored)}
_WORLD = (
    "time",
    "images",
    "jobs",
    "standby_parallelisms",
    "savepoints",
    "rescales",
    "rest_down",
    "node_capacity",
    "masters_hang",
    "zombies",
    "sink",
)
_TEMPLATE = "x-template"
"""The key for the template of a pod as text, which is stored once."""
_STORAGE = ("down", "lost", "disposable", "found", "torn", "leaders", "released", "ended", "input_read")
_CLUSTER = ("logs", "denied", "version", "_uids")


def record(world: World, objects: MutableMapping[str, Any]) -> dict[str, Any]:
    """Return the world as JSON values, and add its Kubernetes objects to `objects` by hash."""
    cluster = world.cluster
    kept = {key: live for key, live in cluster.objects.items() if key[0] != "Event"}
    applied = {key: fields_ for key, fields_ in cluster._applied.items() if key in kept}
    return {
        "world": {name: _encoded(getattr(world, name)) for name in _WORLD},
        "storage": {name: _encoded(getattr(world.storage, name)) for name in _STORAGE},
        "cluster": {name: _encoded(getattr(cluster, name)) for name in _CLUSTER},
        "sets": {
            uid: {_stored(template, objects): _encoded(one) for template, one in sets.items()}
            for uid, sets in world.deployments._sets.items()
        },
        "objects": [_stored(live, objects) for live in kept.values()],
        "applied": {"/".join(key): _stored(value, objects) for key, value in applied.items()},
    }


def restored(recorded: dict[str, Any], objects: dict[str, Any]) -> World:
    """Return a world as it was when it was recorded, with an operator that has just started."""
    world = World()
    for place, part in ((world, "world"), (world.storage, "storage"), (world.cluster, "cluster")):
        for name, value in recorded[part].items():
            setattr(place, name, _decoded(value, world))
    world.deployments._sets = {
        uid: {objects[digest]: _decoded(one, world) for digest, one in sets.items()}
        for uid, sets in recorded["sets"].items()
    }
    cluster = world.cluster
    for digest in recorded["objects"]:
        live = json.loads(json.dumps(objects[digest]))
        if _TEMPLATE in live:
            live[_TEMPLATE] = objects[live[_TEMPLATE]]
        cluster._keep(cluster._key(live), live)
        cluster.watcher(live, False)
    for key, digest in recorded["applied"].items():
        kind, namespace, name = key.split("/")
        cluster._applied[kind, namespace, name] = json.loads(json.dumps(objects[digest]))
    return world


def _stored(value: Any, objects: MutableMapping[str, Any]) -> str:
    if isinstance(value, dict) and _TEMPLATE in value:
        value = {**value, _TEMPLATE: _stored(value[_TEMPLATE], objects)}
    text = json.dumps(value, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    objects[digest] = json.loads(text)
    return digest


def _encoded(value: Any) -> Any:
    if isinstance(value, World):
        return {"$": "World"}
    if isinstance(value, datetime):
        return {"$": "datetime", "at": value.isoformat()}
    if isinstance(value, timedelta):
        return {"$": "timedelta", "seconds": value.total_seconds()}
    if isinstance(value, set | tuple):
        items = sorted(value) if isinstance(value, set) else value
        return {"$": type(value).__name__, "items": [_encoded(item) for item in items]}
    if isinstance(value, list):
        return [_encoded(item) for item in value]
    if isinstance(value, dict):
        return {key: _encoded(item) for key, item in value.items()}
    if is_dataclass(value):
        return {"$": type(value).__name__} | {f.name: _encoded(getattr(value, f.name)) for f in fields(value)}
    return value


def _decoded(value: Any, world: World) -> Any:
    if isinstance(value, list):
        return [_decoded(item, world) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get("$")
    if kind is None:
        return {key: _decoded(item, world) for key, item in value.items()}
    if kind == "World":
        return world
    if kind == "datetime":
        return datetime.fromisoformat(value["at"])
    if kind == "timedelta":
        return timedelta(seconds=value["seconds"])
    if kind in ("set", "tuple"):
        return {"set": set, "tuple": tuple}[kind](_decoded(item, world) for item in value["items"])
    made: Any = _TYPES[kind]
    known = {f.name for f in fields(made)}
    return made(**{name: _decoded(item, world) for name, item in value.items() if name in known})
