"""The lifecycle of the operator: serve probes, wait for the Lease, watch and reconcile, stop when the Lease is lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from typing import TYPE_CHECKING

import httpx

from penstock_operator.connections import connection_pool
from penstock_operator.engine.client import HttpEngine
from penstock_operator.engine.tls import TlsClients
from penstock_operator.errors import KubeError
from penstock_operator.fence import no_fence
from penstock_operator.kube.access import check_access
from penstock_operator.kube.cluster import FLINKCLUSTER, FLINKJOB, FLINKSNAPSHOT
from penstock_operator.kube.http import HttpCluster
from penstock_operator.kube.lease import Leadership
from penstock_operator.kube.watched import WatchedObjects
from penstock_operator.process.controller import Controller
from penstock_operator.process.metrics import Metrics
from penstock_operator.process.otlp import NoTraces, sink_of
from penstock_operator.process.traces import OperationTraces
from penstock_operator.process.watches import watch
from penstock_operator.process.web import build_app, serve
from penstock_operator.reconcile.ports import Ports
from penstock_operator.reconcile.presets.config_maps import ClusterPresets
from penstock_operator.resources.children import OperatorIdentity
from penstock_operator.storage.penstock import PenstockStorages

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock_operator.engine.client import EngineClient, MasterTls
    from penstock_operator.fence import Fence
    from penstock_operator.kube.cluster import Kind
    from penstock_operator.kube.credentials import Credentials
    from penstock_operator.process.config import Config
    from penstock_operator.process.otlp import SpanSink

log = logging.getLogger(__name__)

REST_TIMEOUT = 10.0
MASTERS = 100
"""Maximum number of connections to the jobs' masters."""
KINDS_POLL = 5.0


class Process:
    """One replica of the operator."""

    def __init__(self, config: Config, credentials: Credentials) -> None:
        self.config, self.credentials = config, credentials
        self.metrics = Metrics()
        self.spans: SpanSink = NoTraces()
        self.stop = asyncio.Event()
        self.started = asyncio.Event()
        self.controller: Controller | None = None
        self._leadership = Leadership(config.operator_namespace, config.lease, config.identity)

    async def run(self) -> int:
        """Run until a signal requests the stop, or until the Lease is lost. Return the exit code: 0 after a signal,
        and 1 without the Lease.

        After exit code 1, the kubelet restarts the process, which then waits for the Lease.
        """
        self._listen_to_signals()
        self.spans = sink_of(instance=self.config.identity)
        web = await serve(build_app(self.metrics.render, self._troubles, lambda: True), self.config.port)
        unfenced = HttpCluster(self.credentials, count=self.metrics.requests.add)
        try:
            if self.config.elect and not await self._elected(unfenced):
                return 0
            return await self._lead(unfenced)
        finally:
            await unfenced.close()
            await web.cleanup()
            await asyncio.to_thread(self.spans.close)

    async def _elected(self, cluster: HttpCluster) -> bool:
        log.info("%s is waiting for the lease", self.config.identity)
        election = asyncio.create_task(self._leadership.acquire(cluster))
        stopped = asyncio.create_task(self.stop.wait())
        await asyncio.wait({election, stopped}, return_when=asyncio.FIRST_COMPLETED)
        for task in (election, stopped):
            task.cancel()
        return self._leadership.holds()

    async def _lead(self, unfenced: HttpCluster) -> int:
        self.metrics.leader.set(to=1)
        fence: Fence = self._leadership.fence if self.config.elect else no_fence
        renewing = asyncio.create_task(self._leadership.keep(unfenced) if self.config.elect else _wait_forever())
        cluster = HttpCluster(self.credentials, fence=fence, count=self.metrics.requests.add)
        storages = PenstockStorages(
            fence=fence, own_identity=self.config.settings.own_identity, endpoints=self.config.settings.endpoints
        )
        transport = connection_pool(MASTERS)
        sealed = TlsClients(REST_TIMEOUT, MASTERS)
        async with httpx.AsyncClient(timeout=REST_TIMEOUT, trust_env=False, transport=transport) as http:
            ports = Ports(
                cluster,
                lambda namespace, name, token, tls=None: self._engine(
                    http if tls is None else sealed.client(tls), namespace, name, token, fence, tls
                ),
                storages,
                watched=WatchedObjects(shared=bool(self.config.shard.selector.requirements)),
                shard=self.config.shard,
                settings=self.config.settings,
                identity=OperatorIdentity(self.config.operator_namespace, self.config.app, self.config.monitors),
                presets=ClusterPresets(cluster, self.config.operator_namespace),
                instance=self.config.identity,
            )
            self.controller = Controller(ports, self.metrics, self.config.namespaces, OperationTraces(self.spans.send))
            try:
                if not await self._prepared(unfenced, renewing):
                    return 1
                return await self._work(self.controller, renewing)
            finally:
                await self.controller.close()
                renewing.cancel()
                await asyncio.gather(renewing, return_exceptions=True)
                if self.config.elect:
                    await self._leadership.release(unfenced)
                await sealed.close()
                await cluster.close()
                storages.close()

    async def _prepared(self, cluster: HttpCluster, renewing: asyncio.Task[None]) -> bool:
        """Wait until the cluster is ready. Return False if the Lease was lost in the meantime."""
        preparing = asyncio.create_task(self._prepare(cluster))
        await asyncio.wait({preparing, renewing}, return_when=asyncio.FIRST_COMPLETED)
        if preparing.done():
            preparing.result()
            return True
        preparing.cancel()
        await asyncio.gather(preparing, return_exceptions=True)
        return False

    async def _prepare(self, cluster: HttpCluster) -> None:
        await self._kinds(cluster)
        await check_access(cluster, self.config.namespaces or (self.config.operator_namespace,))

    async def _kinds(self, cluster: HttpCluster) -> None:
        """Wait until the CRDs are installed. kopf discovers kinds only once, so it would never watch a CRD that is
        installed later.
        """
        while not self.stop.is_set():
            missing = [
                kind.name for kind in (FLINKJOB, FLINKSNAPSHOT, FLINKCLUSTER) if not await self._served(cluster, kind)
            ]
            if not missing:
                return
            log.warning("%s: the CRD is not installed; waiting for it", ", ".join(missing))
            await asyncio.sleep(KINDS_POLL)

    async def _served(self, cluster: HttpCluster, kind: Kind) -> bool:
        try:
            return await cluster.serves(kind)
        except KubeError as error:
            log.warning("%s", error)
            return False

    async def _work(self, controller: Controller, renewing: asyncio.Task[None]) -> int:
        watching = asyncio.create_task(
            watch(
                controller,
                self.credentials,
                self.config.namespaces,
                selector=self.config.selector.text,
                stop=self.stop,
                ready=self.started,
            )
        )
        syncing = asyncio.create_task(controller.keep_synced())
        signals = asyncio.create_task(self._signals_after_kopf())
        tasks: set[asyncio.Future[None]] = {watching, syncing, renewing}
        try:
            done, _ = await asyncio.wait({*tasks, controller.fatal}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.stop.set()
            for task in (syncing, signals):
                task.cancel()
            await controller.close()  # before the watches, whose shutdown may take long
            watching.cancel()
            await asyncio.gather(watching, syncing, return_exceptions=True)
        if watching in done and watching.exception() is None:
            return 0
        for finished in done:
            with contextlib.suppress(asyncio.CancelledError):
                if finished.exception() is not None:
                    log.error("the operator shuts down: %s", finished.exception())
        return 1

    def _engine(
        self,
        http: httpx.AsyncClient,
        namespace: str,
        name: str,
        token: str | None,
        fence: Fence,
        tls: MasterTls | None,
    ) -> EngineClient:
        url = self.config.rest_url.format(namespace=namespace, name=name)
        if tls is not None:
            url = f"https://{url.partition('://')[2]}"
        return HttpEngine(http, url, token, fence)

    def _troubles(self) -> list[str]:
        return self.controller.stuck() if self.controller is not None else []

    async def _signals_after_kopf(self) -> None:
        """Replace the signal handlers that kopf installs at its start. A second signal would make these handlers
        fail.
        """
        await self.started.wait()
        self._listen_to_signals()

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        handle: Callable[[], None] = self.stop.set
        for number in (signal.SIGINT, signal.SIGTERM):
            # Handlers are not available outside the main thread (tests) and on Windows. There the caller sets `stop`.
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, handle)


async def _wait_forever() -> None:
    await asyncio.Event().wait()
