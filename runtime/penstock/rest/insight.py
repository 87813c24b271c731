"""The part of the interface to the engine for the dashboard, for which Flink's REST API has no paths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.rest import facts, models


class JobInsight(Protocol):
    """Data of a job for the dashboard.

    In all methods, an unknown job id raises `rest.errors.NotFound`. Several threads may call the methods at once.
    """

    def past_checkpoints(self, job_id: str) -> Sequence[facts.PastCheckpoint]:
        """Return the last few hundred checkpoints, the oldest first. Checkpoints in progress come last."""
        ...

    def metric_history(self, job_id: str, vertex_id: str | None) -> facts.MetricHistory:
        """Return the samples of a vertex, by the engine's id. None means the samples of the job. The samples cover about the last hour."""
        ...

    def connectors(self, job_id: str) -> facts.Connectors: ...

    def autoscaler(self, job_id: str) -> models.AutoscalerStatus: ...

    def autoscaler_recording(self, job_id: str) -> Sequence[str]:
        """Return the lines of the recording of the autoscaler's measurements."""
        ...

    def edges(self, job_id: str) -> Sequence[facts.Edge]:
        """Return all edges between operators, also those inside of vertices."""
        ...

    def states(self, job_id: str) -> Sequence[facts.StateName]:
        """Return the states in the newest checkpoint.

        Raises:
            StateNotFound: there is no checkpoint yet.
        """
        ...

    def state_entries(self, job_id: str, name: str, uid: str | None, key: str | None, limit: int) -> facts.StateEntries:
        """Return the entries of one key, or the first entries, in the newest checkpoint.

        Args:
            uid: uid of the operator. None means the only operator with a state of this name.
            key: key as JSON or as text.

        Raises:
            NotFound, StateNotFound: there is no checkpoint, or the newest checkpoint does not contain the state.
            BadRequest: several operators have a state of this name, or the state is too large to be read here.
        """
        ...

    def live_entries(self, job_id: str, name: str, uid: str | None, key: str) -> facts.StateEntries:
        """Return the current entries of one key in the task that owns the key.

        Args:
            name: name of a queryable state.
            uid, key: as in `state_entries`.

        Raises:
            NotFound: no state is queryable by that name.
            BadRequest, NotPeekable: tasks do not support this lookup.
            NotNow: the lookup is impossible at the moment.
        """
        ...
