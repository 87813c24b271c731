"""Two complete replicas at one API server. Only the holder of the Lease acts, and it stops when it loses the Lease."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import httpx
import pytest

from penstock_operator.kube.credentials import Credentials
from penstock_operator.kube.http import HttpCluster
from penstock_operator.kube.lease import Leadership, LeaseTimes
from penstock_operator.process import lifecycle
from penstock_operator.process.config import Config
from penstock_operator.process.lifecycle import Process
from penstock_operator.process.otlp import NoTraces
from penstock_operator.settings import Settings
from tests.unit.operator.world import World, flinkjob
from tests.unit.operator.world.kubernetes.api import FakeApi

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from penstock_operator.process.controller import Controller

    Scenario = Callable[["Site"], Coroutine[None, None, None]]
    Play = Callable[[Scenario], None]

TIMES = LeaseTimes(timedelta(seconds=6), timedelta(seconds=3), timedelta(seconds=0.2))
PATIENCE = 60.0
OFTEN = timedelta(seconds=0.3)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


class Site:
    """An API server and the replicas at it. The watches report nothing, so that only the resync finds work."""

    def __init__(self) -> None:
        self.world = World()
        self.api = FakeApi(self.world.cluster)
        self.replicas: dict[str, Process] = {}
        self.running: dict[str, asyncio.Task[None]] = {}
        self.codes: dict[str, list[int]] = {}
        """The exit codes of each replica."""
        self.watches_linger = 0.0
        self.closed_first: list[bool] = []
        """Whether the loops of each replica that ended had stopped before its watches."""

    def start(self, name: str) -> None:
        self.codes[name] = []
        self.running[name] = asyncio.create_task(self._run(name), name=name)

    async def _run(self, name: str) -> None:
        """Restart a replica that has lost the Lease, as the kubelet does."""
        settings = Settings(resync=OFTEN, progress=OFTEN, watch=OFTEN)
        while not any(code == 0 for code in self.codes[name]):
            config = Config(operator_namespace="default", identity=name, port=free_port(), settings=settings)
            self.replicas[name] = Process(config, Credentials("https://api", tls=False, token=name))
            self.codes[name].append(await self.replicas[name].run())

    async def watch(
        self, controller: Controller, *_: object, stop: asyncio.Event, ready: asyncio.Event, **__: object
    ) -> None:
        ready.set()
        await stop.wait()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(self.watches_linger)
        self.closed_first.append(controller.closed)

    async def until(self, reached: Callable[[], bool], description: str) -> None:
        end = asyncio.get_running_loop().time() + PATIENCE
        while not reached():
            assert asyncio.get_running_loop().time() < end, f"not so in time: {description}; {self.api.writes[-5:]}"
            await asyncio.sleep(0.05)

    def wrote(self, name: str) -> int:
        return sum(who == name for who, _, _ in self.api.writes)

    async def edited(self) -> None:
        """Edit a job, so that the leader has work."""
        version = self.world.job()["metadata"]["generation"] + 1
        self.world.edit(image=f"job:{version}")
        await self.until(lambda: self.world.status().get("observedGeneration") == version, "somebody has seen the edit")


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    def run(scenario: Scenario) -> None:
        async def main() -> None:
            site = Site()
            transport = httpx.MockTransport(site.api.answer)
            monkeypatch.setattr(lifecycle, "HttpCluster", partial(HttpCluster, transport=transport))
            monkeypatch.setattr(lifecycle, "Leadership", partial(Leadership, times=TIMES))
            monkeypatch.setattr(lifecycle, "watch", site.watch)
            monkeypatch.setattr(lifecycle, "KINDS_POLL", 0.1)
            site.world.apply(flinkjob())
            try:
                await scenario(site)
            finally:
                for replica in site.running.values():
                    replica.cancel()
                await asyncio.gather(*site.running.values(), return_exceptions=True)
            wrong = [write for write in site.api.writes if write[0] != write[2]]
            assert not wrong, f"written without the Lease: {wrong[:5]}"

        asyncio.run(main())

    return run


def test_unsent_traces_do_not_delay_the_shutdown(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    closing_in: list[threading.Thread] = []

    class Sink(NoTraces):
        def close(self) -> None:
            closing_in.append(threading.current_thread())

    monkeypatch.setattr(lifecycle, "sink_of", lambda instance: Sink())

    async def scenario(site: Site) -> None:
        site.start("one")
        await site.until(lambda: site.wrote("one") > 0, "it works")
        site.replicas["one"].stop.set()
        await site.until(lambda: bool(site.codes["one"]), "it ends")

    play(scenario)
    assert len(closing_in) == 1
    assert closing_in[0] is not threading.main_thread()


def test_a_second_replica_does_nothing(play: Play) -> None:
    async def scenario(site: Site) -> None:
        site.start("one")
        await site.until(lambda: site.wrote("one") > 0, "the first one works")
        site.start("two")
        for _ in range(2):
            await site.edited()
            await asyncio.sleep(1)
        assert site.wrote("two") == 0
        assert site.replicas["two"].controller is None, "it does not even look"

    play(scenario)


def test_a_leader_without_answers_stops_and_the_other_takes_over(play: Play) -> None:
    async def scenario(site: Site) -> None:
        site.watches_linger = 2.0
        site.start("one")
        await site.until(lambda: site.wrote("one") > 0, "the first one works")
        site.start("two")
        await asyncio.sleep(0.5)
        site.api.hangs.add("one")
        await site.until(lambda: site.api.holder() == "two", "the other one has the Lease")
        await site.edited()
        await site.until(lambda: site.codes["one"] == [1], "it ends without an answer of the API server")
        assert site.closed_first == [True]
        site.api.hangs.clear()
        await site.edited()

    play(scenario)


@pytest.mark.slow
def test_a_leader_keeps_the_lease_while_it_waits_for_the_crds(play: Play) -> None:
    async def scenario(site: Site) -> None:
        site.api.kinds = False
        site.start("one")
        await site.until(lambda: site.api.holder() == "one", "the first one leads")
        site.start("two")
        await asyncio.sleep(TIMES.duration.total_seconds() + 2)
        assert site.api.holder() == "one"
        site.api.kinds = True
        await site.until(lambda: site.wrote("one") > 0, "the first one works")

    play(scenario)


def test_a_stopped_leader_hands_over_immediately(play: Play) -> None:
    async def scenario(site: Site) -> None:
        site.start("one")
        await site.until(lambda: site.wrote("one") > 0, "the first one works")
        site.start("two")
        await asyncio.sleep(0.5)
        site.replicas["one"].stop.set()
        await site.until(lambda: site.codes["one"] == [0], "it has ended")
        await site.edited()
        assert site.wrote("two") > 0

    play(scenario)
