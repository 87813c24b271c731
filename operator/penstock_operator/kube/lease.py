"""Leader election with a Kubernetes Lease: exactly one replica of the operator acts.

The peering of kopf pauses handlers by priority. This peering is not an election, because two operators can act at the
same time for a minute. Here the whole operator only runs while it holds the Lease. Every change of the cluster, of a
job or of storage calls `fence` first. `fence` refuses the change as soon as another replica *may* have taken the Lease.

The times are counted from the last renewal:

1. After `renew_deadline` the holder starts no more changes.
2. Halfway between `renew_deadline` and `duration`, the holder cancels the changes that are still in progress.
3. After `duration` another replica may take the Lease.

The gaps allow for clocks that run at different speeds. The clocks of two machines are never compared. A candidate
measures the time since it last *saw* the Lease change, on a clock that also runs while the machine sleeps.
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
    """Times of the election. The defaults are those of Kubernetes' own components."""

    duration: timedelta = timedelta(seconds=15)
    """Time without a renewal after which another candidate may take the Lease."""
    renew_deadline: timedelta = timedelta(seconds=10)
    """Time without a renewal after which the holder stops acting."""
    retry: timedelta = timedelta(seconds=2)
    """Pause between two attempts."""

    @property
    def change_deadline(self) -> timedelta:
        """Time since the last renewal by which a change must be complete."""
        return (self.renew_deadline + self.duration) / 2


def seconds_passed() -> float:
    """Return the time of a clock that also runs while the machine sleeps, because a Lease can expire during that
    time.
    """
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)


class Leadership:
    """A candidate of the leader election."""

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
        """Return whether this candidate holds the Lease and no other candidate can have taken it yet."""
        if self._renewed is None:
            return False
        return self._clock() - self._renewed < self.times.renew_deadline.total_seconds()

    def fence(self) -> float:
        """Return the number of seconds within which a change must be complete. Raise `NotLeader` if this candidate
        does not hold the Lease.
        """
        if self._renewed is None or not self.holds():
            msg = f"{self.identity} does not hold the lease {self.namespace}/{self.name}"
            raise NotLeader(msg)
        return self.times.change_deadline.total_seconds() - (self._clock() - self._renewed)

    async def attempt(self, cluster: Cluster) -> bool:
        """Try to take or renew the Lease. Return whether this candidate holds it. `cluster` must not be fenced."""
        started = self._clock()
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
        self._renewed = started
        return True

    async def acquire(self, cluster: Cluster) -> None:
        """Wait until this candidate holds the Lease."""
        while not await self.attempt(cluster):
            await asyncio.sleep(self.times.retry.total_seconds())
        log.info("%s is the leader", self.identity)

    async def keep(self, cluster: Cluster) -> None:
        """Renew the Lease until the leadership is lost, then return. The leadership is also lost if the API server does
        not respond.

        Each attempt may take at most half of `renew_deadline`, so that a second attempt can use another connection.
        """
        retry, deadline = self.times.retry.total_seconds(), self.times.renew_deadline.total_seconds()
        while self.holds():
            await asyncio.sleep(retry)
            remaining_s = deadline - (self._clock() - (self._renewed or 0.0))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(min(remaining_s, deadline / 2), retry)):
                    await self.attempt(cluster)
        log.error("%s has lost the lease", self.identity)

    async def release(self, cluster: Cluster) -> None:
        """Release the Lease, so that another candidate can take it immediately."""
        if not self.holds():
            return
        self._renewed = None
        try:
            lease = await cluster.get(LEASE, self.namespace, self.name)
            if lease is not None and lease["spec"].get("holderIdentity") == self.identity:
                lease["spec"]["holderIdentity"] = ""
                await cluster.replace(lease)
        except KubeError as error:
            log.info("the lease could not be released and will expire: %s", error)

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
