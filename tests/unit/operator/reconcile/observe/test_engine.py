"""Messages of a master, translated into the terms of a FlinkJob."""

from __future__ import annotations

import asyncio

import httpx

from penstock_operator.engine.client import HttpEngine
from penstock_operator.reconcile.observe.engine import _query
from penstock_operator.reconcile.observe.scope import Scope


def test_remedies_name_fields_of_the_flinkjob() -> None:
    reason = "the Python worker was killed\n  remedy: raise taskmanager.memory.process.size, or lower taskmanager.numberOfTaskSlots"

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"jid": "j", "state": "RESTARTING", "exception": reason})

    client = HttpEngine(httpx.AsyncClient(transport=httpx.MockTransport(answer)), "http://rest:8081/", None)
    engine = asyncio.run(_query(client, "j", Scope()))
    assert engine.exception.endswith("raise spec.worker.resources.limits.memory, or lower spec.worker.slots")
