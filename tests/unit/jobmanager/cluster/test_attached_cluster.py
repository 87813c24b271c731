"""The objects of a program's process in the driver of its session."""

from __future__ import annotations

import gc
from collections import deque
from typing import Any

from py4j.finalizer import ThreadSafeFinalizer
from py4j.java_gateway import JavaObject

from penstock.jobmanager.cluster.attached_cluster import release_objects


class Client:
    """A Py4J client that records the objects that it releases. Freed objects wait, as for a thread that does not run any more."""

    address, port = "127.0.0.1", 25333
    is_connected = enable_memory_management = True

    def __init__(self) -> None:
        self.finalizer_deque: deque[Any] = deque()
        self.released: list[str] = []
        self.gateway_property = self
        self.pool = self.auto_field = None

    def garbage_collect_object(self, target_id: str, enqueue: bool = True) -> None:
        if enqueue:
            self.finalizer_deque.appendleft((self, target_id))
        else:
            self.released.append(target_id)


def test_objects_in_use_and_freed_objects_are_released_once() -> None:
    client = Client()
    held = [JavaObject("o1", client), JavaObject("o2", client)]
    freed = JavaObject("o3", client)
    other = Client()
    other.port = 25334
    kept = JavaObject("o9", other)
    del freed
    gc.collect()
    assert [target for _, target in client.finalizer_deque] == ["o3"]
    release_objects(client)
    assert sorted(client.released) == ["o1", "o2", "o3"]
    assert kept._target_id == "o9"
    del held
    gc.collect()
    assert len(client.finalizer_deque) == 1  # Python frees the objects later, without another call to the driver
    assert not ThreadSafeFinalizer.finalizers
