"""How patient the operator is. One frozen object, given to the pure core as an argument."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from penstock_operator.api.own_identity import OwnIdentity


@dataclass(frozen=True)
class Settings:
    """Times and limits that are not a job's own business; the chart's `values.yaml` sets some of them."""

    resync: timedelta = timedelta(seconds=60)
    """Between two passes over a job where nothing happens."""
    progress: timedelta = timedelta(seconds=2)
    """Between two passes while an operation waits for something."""
    prompt: timedelta = timedelta(seconds=0.3)
    """The same for the savepoint of a stop, in the first seconds: the job stands still when it is complete."""
    watch: timedelta = timedelta(seconds=15)
    """Between two passes over a running job."""
    volatile_write: timedelta = timedelta(seconds=60)
    """Between two writes of a status in which only the newest checkpoint or the restarts changed."""
    dependents_resync: timedelta = timedelta(minutes=10)
    """Between two checks of Services, ConfigMaps and so on, which are not watched."""
    not_running_grace: timedelta = timedelta(minutes=2)
    """How long an upgrade waits for a job that is not RUNNING before it takes the newest checkpoint instead."""
    ending_timeout: timedelta = timedelta(minutes=3)
    """How long a job may be CANCELLING or FAILING before its pods are stopped."""
    suspended_timeout: timedelta = timedelta(minutes=2)
    """How long a master that was fenced off may stay SUSPENDED; it ends by itself after one minute, and is started again."""
    teardown_timeout: timedelta = timedelta(minutes=3)
    """How long pods may take to go before those on lost nodes are no longer waited for (storage fences them)."""
    dispose_timeout: timedelta = timedelta(minutes=2)
    """How long the removal of checkpoints is tried when a FlinkJob is deleted."""
    rescale_timeout: timedelta = timedelta(minutes=5)
    """How long one attempt to rescale may take."""
    silence: timedelta = timedelta(seconds=30)
    """How long a master whose pod is ready may leave requests unanswered before the job counts as not running."""
    rollback_patience: timedelta = timedelta(minutes=5)
    """How long at least a rollback may take to become stable: behind it there is nothing to go back to."""
    checkpoint_patience: timedelta = timedelta(seconds=5)
    """How long a new revision that is RUNNING is given for its first checkpoint before one is asked for."""
    read_patience: timedelta = timedelta(minutes=1)
    """How long some read about an object may fail, while the object itself is answered for, before that is told."""
    refusal_patience: timedelta = timedelta(seconds=5)
    """How long pods may be refused before a person is told: a quota counts pods that have just gone a moment longer."""
    backoff_first: timedelta = timedelta(seconds=10)
    """First pause after a failure; it doubles."""
    backoff_limit: timedelta = timedelta(minutes=5)
    """Longest pause after failures."""
    crash_restarts: int = 3
    """Restarts of the master's container that count as a crash loop."""
    stalled_attempts: int = 2
    """Failed attempts after which `Stalled` tells a person."""
    history: int = 10
    """Operations kept in the status."""
    text_limit: int = 1024
    """Characters kept of any text that comes from an engine, a pod or a cluster."""
    lost_node_toleration: timedelta = timedelta(seconds=30)
    """How long pods stay bound to a node that does not answer."""
    own_identity: OwnIdentity = field(default_factory=OwnIdentity)
    """What jobs without keys of their own may reach with the operator's."""

    def backoff(self, failures: int) -> timedelta:
        """The pause after so many failures in a row."""
        doublings = min(max(failures, 1) - 1, 16)
        return min(self.backoff_limit, self.backoff_first * (1 << doublings))
