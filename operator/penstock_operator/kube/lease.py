"""Leadership by a Kubernetes Lease: of several operators exactly one acts.

kopf's peering pauses handlers by priorities and is no election: two operators can act at once for a minute. Here the
whole operator runs only while it holds the Lease, and every change, of the cluster, of a job and of storage, goes
through `fence`, which refuses as soon as the Lease *may* have been lost: the holder gives up after `renew_deadline`,
others take over only after `duration`, and the gap between the two is for the changes that are under way, which are
given up in the middle of it, and for clocks that run at different speeds. Clocks are never compared between machines: a
candidate counts the time since it last *saw* the Lease change, on its own clock, which goes on while the machine sleeps.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from penstock_operator.errors import AlreadyExists, Conflict, KubeError, NotLeader
from penstock_operator.kube.cluster import LEASE, Cluster, Manifest

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LeaseTimes:
    """The usual times of Kubernetes' own components."""

    duration: timedelta = timedelta(seconds=15)
    """A Lease not renewed for this long may be taken."""
    renew_deadline: timedelta = timedelta(seconds=10)
    """A holder that could not renew for this long stops acting."""
    retry: timedelta = timedelta(seconds=2)
    """Between two attempts."""

    @property
    def change_deadline(self) -> timedelta:
        """When a change that began in time must have been made."""
        return (self.renew_deadline + self.duration) / 2


def seconds_passed() -> float:
    """A clock that also counts the time in which the machine sleeps; a Lease expires meanwhile."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)


class Leadership:
    """One candidate."""

    def __init__(
        self,
        namespace: str,
        name: str,
        identity: str,
        times: LeaseTimes | None = None,
        clock: Callable[[], float] = seconds_passed,
    ) -> None:
        self.namespace, self.name, self.identity = namespace, name, identity
        self.times = times or LeaseTimes()
        self._clock = clock
        self._renewed: float | None = None
        self._seen: tuple[str, float] | None = None

    def holds(self) -> bool:
        """We hold the Lease, and nobody can have taken it yet."""
        if self._renewed is None:
            return False
        return self._clock() - self._renewed < self.times.renew_deadline.total_seconds()

    def fence(self) -> float:
        """Seconds within which a change that begins now must have been made; `NotLeader` unless we hold the Lease."""
        if self._renewed is None or not self.holds():
            msg = f"{self.identity} does not hold the lease {self.namespace}/{self.name}"
            raise NotLeader(msg)
        return self.times.change_deadline.total_seconds() - (self._clock() - self._renewed)

    async def attempt(self, cluster: Cluster) -> bool:
        """Take or renew the Lease if that is possible now. `cluster` must not be fenced."""
        asked = self._clock()
        try:
            lease = await cluster.get(LEASE, self.namespace, self.name)
            if lease is None:
                await cluster.create(self._manifest(transitions=0))
            elif self._free(lease):
                await cluster.replace(self._taken(lease))
            else:
                return False
        except (AlreadyExists, Conflict):
            return False
        except KubeError as error:
            log.warning("lease %s/%s: %s", self.namespace, self.name, error)
            return self.holds()
        self._renewed = asked
        return True

    async def acquire(self, cluster: Cluster) -> None:
        """Wait until we hold the Lease."""
        while not await self.attempt(cluster):
            await asyncio.sleep(self.times.retry.total_seconds())
        log.info("%s leads", self.identity)

    async def keep(self, cluster: Cluster) -> None:
        """Renew until that fails for too long; returns when the leadership is lost, also if nobody answers until then.

        An attempt gets half of the time there is at most: the next one goes over another connection.
        """
        retry, deadline = self.times.retry.total_seconds(), self.times.renew_deadline.total_seconds()
        while self.holds():
            await asyncio.sleep(retry)
            left = deadline - (self._clock() - (self._renewed or 0.0))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(min(left, deadline / 2), retry)):
                    await self.attempt(cluster)
        log.error("%s has lost the lease", self.identity)

    async def release(self, cluster: Cluster) -> None:
        """Let another take over at once."""
        if not self.holds():
            return
        self._renewed = None
        try:
            lease = await cluster.get(LEASE, self.namespace, self.name)
            if lease is not None and lease["spec"].get("holderIdentity") == self.identity:
                lease["spec"]["holderIdentity"] = ""
                await cluster.replace(lease)
        except KubeError as error:
            log.info("the lease is not released, it will expire: %s", error)

    def _free(self, lease: Manifest) -> bool:
        spec = lease.get("spec", {})
        holder = spec.get("holderIdentity")
        if holder in (self.identity, "", None):
            return True
        version = str(lease["metadata"].get("resourceVersion"))
        if self._seen is None or self._seen[0] != version:
            self._seen = (version, self._clock())
        waited = self._clock() - self._seen[1]
        return waited > max(float(spec.get("leaseDurationSeconds") or 0), self.times.duration.total_seconds())

    def _taken(self, lease: Manifest) -> Manifest:
        spec = lease.get("spec", {})
        ours = spec.get("holderIdentity") == self.identity
        transitions = int(spec.get("leaseTransitions") or 0) + (0 if ours else 1)
        fresh = self._manifest(transitions=transitions)["spec"]
        if ours:
            fresh["acquireTime"] = spec.get("acquireTime", fresh["acquireTime"])
        return {**lease, "spec": {**spec, **fresh}}

    def _manifest(self, *, transitions: int) -> Manifest:
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.name,
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": int(self.times.duration.total_seconds()),
                "acquireTime": moment,
                "renewTime": moment,
                "leaseTransitions": transitions,
            },
        }
