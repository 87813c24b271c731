"""Bulk requests, and the result of each action (https://docs.opensearch.org/latest/api-reference/document-apis/bulk/)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.common.errors import SinkError
from penstock.connectors.core.bulk import Bulk
from penstock.connectors.opensearch.actions import Request
from penstock.connectors.opensearch.cluster import TOO_LARGE, Connection, Lost, as_json, not_opensearch

_CONFLICT, _NOT_FOUND = 409, 404
_PASSING_STATUS = frozenset({429, 502, 503, 504})
_PASSING_KINDS = (
    "cluster_block_exception",
    "process_cluster_event_timeout_exception",
    "es_rejected_execution_exception",
    "rejected_execution_exception",
    "circuit_breaking_exception",
    "unavailable_shards_exception",
    "no_shard_available_action_exception",
    "node_not_connected_exception",
    "node_disconnected_exception",
)
"""Errors that may disappear without a change to the job: a full disk, missing shards, a full queue."""
_REMEDIES = (
    (
        ("mapper_parsing_exception", "document_parsing_exception", "strict_dynamic_mapping_exception"),
        "map records to documents that the index's mapping accepts, or change the mapping",
    ),
    (("index_not_found_exception",), "create the index, or let the cluster do so (action.auto_create_index)"),
    (("invalid_index_name_exception",), "use lower-case names of indices, without spaces, / and commas"),
    (("security_exception",), "grant the job's user the right to write this index"),
    (("document_missing_exception",), 'add "doc_as_upsert": True to the update, or write whole documents'),
)


class ActionBulk(Bulk[Request]):
    """The bulk requests of one sink."""

    def __init__(self, connection: Connection, patience_s: float) -> None:
        super().__init__(patience_s)
        self._connection = connection

    def _try(self, writes: Sequence[Request]) -> tuple[Sequence[Request], SinkError]:
        try:
            answer = self._connection.ask("POST", "/_bulk", b"".join(request.lines for request in writes))
        except Lost as error:
            return writes, error
        if answer.status_code == TOO_LARGE:
            return self._try_halves(writes)
        found = as_json(answer)
        items = found.get("items") if isinstance(found, dict) else None
        if not isinstance(items, list) or len(items) != len(writes):
            raise not_opensearch(answer)
        nothing = SinkError("")
        if not found.get("errors"):
            return (), nothing
        failed = [(request, self._refusal(request, item)) for request, item in zip(writes, items, strict=True)]
        rejected = [(request, refusal) for request, refusal in failed if refusal is not None]
        return [request for request, _ in rejected], rejected[0][1] if rejected else nothing

    def _try_halves(self, writes: Sequence[Request]) -> tuple[Sequence[Request], SinkError]:
        if len(writes) == 1:
            raise SinkError(
                f"{self._connection.cluster.shown}: {writes[0].shown} has {len(writes[0].lines):,} bytes, above the server's limit (413)",
                remedy="raise the server's http.max_content_length, or write smaller documents",
            )
        middle = len(writes) // 2
        first, refusal = self._try(writes[:middle])
        second, why_second = self._try(writes[middle:])
        return [*first, *second], refusal if first else why_second

    def _refusal(self, request: Request, item: Any) -> SinkError | None:
        """Return the reason to retry the request, or None if the request is done.

        Raises:
            SinkError: a retry cannot help.
        """
        about = item.get(request.operation, {})
        status, error = int(about.get("status", 0)), about.get("error")
        if error is None:
            if status < 300 or (status == _NOT_FOUND and request.operation == "delete"):
                return None
            error = {"type": "unknown", "reason": str(about)}
        if status == _CONFLICT and (request.operation == "create" or request.is_versioned):
            return None  # the server already has the document, or a newer version
        kind, reason = str(error.get("type", "")), str(error.get("reason", ""))
        cause = error.get("caused_by")
        if isinstance(cause, dict) and cause.get("reason"):
            reason += f": {cause['reason']}"
        remedy = next(
            (remedy for kinds, remedy in _REMEDIES if kind in kinds),
            "correct the request, which the server's message describes",
        )
        refusal = SinkError(
            f"{self._connection.cluster.shown}: {request.shown} is rejected: {kind} ({status}): {reason[:500]}",
            remedy=remedy,
        )
        if status in _PASSING_STATUS or kind in _PASSING_KINDS or status == _CONFLICT:
            return refusal
        raise refusal

    def close(self) -> None:
        self._connection.close()
