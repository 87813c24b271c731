"""The part of the seam to the engine that only the dashboard needs: what Flink's REST API has no paths for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.rest import facts


class JobInsight(Protocol):
    """Everywhere: an unknown job id raises `rest.errors.NotFound`. May be asked from several threads at once."""

    def past_checkpoints(self, job_id: str) -> Sequence[facts.PastCheckpoint]:
        """Some hundred of the last, the oldest first; those in progress last."""
        ...

    def metric_history(self, job_id: str, vertex_id: str | None) -> facts.MetricHistory:
        """Of a vertex, by the engine's id, or with None of the job; about the last hour."""
        ...

    def connectors(self, job_id: str) -> facts.Connectors: ...

    def states(self, job_id: str) -> Sequence[facts.StateName]:
        """In the newest checkpoint.

        Raises:
            StateNotFound: there is no checkpoint yet.
        """
        ...

    def state_entries(self, job_id: str, name: str, uid: str | None, key: str | None, limit: int) -> facts.StateEntries:
        """Of one key, or the first ones, in the newest checkpoint.

        Args:
            uid: the operator; None: the only one that has such a state.
            key: as JSON, or as text.

        Raises:
            NotFound, StateNotFound: there is no checkpoint, or no such state in it.
            BadRequest: several operators have such a state, or it is too large to be looked into here.
        """
        ...

    def live_entries(self, job_id: str, name: str, uid: str | None, key: str) -> facts.StateEntries:
        """Of one key, as the task that has it holds it now.

        Args:
            name: that of a queryable state.
            uid, key: as above.

        Raises:
            NotFound: no state is queryable by that name.
            BadRequest, NotPeekable: tasks do not answer this.
            NotNow: nor at the moment.
        """
        ...
