"""Timeouts and limits of the operator: one frozen object, which the pure core receives as an argument."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from penstock_operator.api.limits.endpoints import AllowedEndpoints
from penstock_operator.api.limits.own_identity import OwnIdentity
from penstock_operator.api.limits.tenant_limits import TenantLimits


@dataclass(frozen=True)
class Settings:
    """Timeouts and limits that a job cannot set. The chart's `values.yaml` sets some of them."""

    resync: timedelta = timedelta(seconds=60)
    """Pause between two passes over a job without changes."""
    progress: timedelta = timedelta(seconds=2)
    """Pause between two passes while an operation waits."""
    prompt: timedelta = timedelta(seconds=0.3)
    """Pause between two passes in the first seconds of a stop with a savepoint. It is short, because the job is down as
    soon as the savepoint is complete.
    """
    watch: timedelta = timedelta(seconds=15)
    """Pause between two passes over a running job."""
    volatile_write: timedelta = timedelta(seconds=60)
    """Pause between two writes of a status if only the newest checkpoint or the number of restarts has changed."""
    dependents_resync: timedelta = timedelta(minutes=10)
    """Pause between two comparisons of Services, ConfigMaps and other objects that are not watched."""
    not_running_grace: timedelta = timedelta(minutes=2)
    """Time that an upgrade waits for a job to become RUNNING before it uses the newest checkpoint instead."""
    ending_timeout: timedelta = timedelta(minutes=3)
    """Maximum time that a job may be CANCELLING or FAILING before its pods are stopped."""
    suspended_timeout: timedelta = timedelta(minutes=2)
    """Maximum time that a fenced master may stay SUSPENDED. Normally it ends after one minute, and is restarted."""
    teardown_timeout: timedelta = timedelta(minutes=3)
    """Time to wait for the end of pods. After this time, the operator does not wait for pods on lost nodes. These pods
    are fenced in storage.
    """
    stuck_pods_timeout: timedelta = timedelta(minutes=10)
    """Time to wait for the end of pods before the operator reports them."""
    dispose_timeout: timedelta = timedelta(minutes=2)
    """Timeout for deleting the checkpoints of a FlinkJob that is being deleted."""
    rescale_timeout: timedelta = timedelta(minutes=5)
    """Timeout of one attempt to rescale."""
    silence: timedelta = timedelta(seconds=30)
    """Maximum time without a response from a master before the job counts as not running."""
    rollback_patience: timedelta = timedelta(minutes=5)
    """Minimum time that a rollback has to become stable, because no further revision exists to return to."""
    checkpoint_patience: timedelta = timedelta(seconds=5)
    """Time to wait for the first checkpoint of a new revision that is RUNNING before the operator requests one."""
    read_patience: timedelta = timedelta(minutes=1)
    """Maximum time that reads of other objects may fail before the operator reports the failure, while it can read the
    object itself.
    """
    upkeep_patience: timedelta = timedelta(seconds=30)
    """Time that a step may wait before the operator also does the usual upkeep of the running job."""
    refusal_patience: timedelta = timedelta(seconds=5)
    """Time that the API server may refuse pods before the operator reports the refusal. A quota still counts pods for a
    moment after they have ended.
    """
    backoff_first: timedelta = timedelta(seconds=10)
    """First pause after a failure. It doubles with each further failure."""
    backoff_limit: timedelta = timedelta(minutes=5)
    """Longest pause after failures."""
    infrastructure_patience: timedelta = timedelta(minutes=30)
    """Maximum time that the master of a new revision may fail to use storage before the revision is given up."""
    storage_retry: timedelta = timedelta(minutes=2)
    """Time that a master may try to use storage when it restarts after a storage failure. The engine itself tries for
    one minute.
    """
    crash_restarts: int = 3
    """Number of restarts of the master's container that count as a crash loop."""
    stalled_attempts: int = 2
    """Number of failed attempts after which `Stalled` reports the failure."""
    history: int = 10
    """Number of operations kept in the status."""
    text_limit: int = 1024
    """Maximum number of characters kept of a text from an engine, a pod or a cluster."""
    lost_node_toleration: timedelta = timedelta(seconds=30)
    """Time that pods stay bound to a node that does not respond."""
    endpoints: AllowedEndpoints = field(default_factory=AllowedEndpoints)
    """Storage endpoints that the operator may connect to."""
    own_identity: OwnIdentity = field(default_factory=OwnIdentity)
    tenants: TenantLimits = field(default_factory=TenantLimits)
    """Limits on the Ingresses, annotations and git servers of jobs."""

    def backoff(self, failures: int) -> timedelta:
        """Return the pause after this number of consecutive failures."""
        doublings = min(max(failures, 1) - 1, 16)
        return min(self.backoff_limit, self.backoff_first * (1 << doublings))
