"""Bulk requests, and what becomes of each of their actions (https://docs.opensearch.org/latest/api-reference/document-apis/bulk/)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from penstock.common.errors import SinkError
from penstock.connectors.opensearch.actions import Request
from penstock.connectors.opensearch.cluster import TOO_LARGE, Connection, Lost, as_json, stranger

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 3.0
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
"""Refusals that may end without the job's doing: the disk gets room, shards come back, a queue empties."""
_REMEDIES = (
    (
        ("mapper_parsing_exception", "document_parsing_exception", "strict_dynamic_mapping_exception"),
        "map records to what the index's mapping takes, or change the mapping",
    ),
    (("index_not_found_exception",), "make the index, or let the cluster do so (action.auto_create_index)"),
    (("invalid_index_name_exception",), "names of indices are of lower case, without spaces, / and commas"),
    (("security_exception",), "grant the job's user to write this index"),
    (("document_missing_exception",), 'add "doc_as_upsert": True to the update, or write whole documents'),
)


class Bulk:
    """
    Args:
        patience_s: how long nothing may go forward until the job fails over.
    """

    def __init__(self, connection: Connection, patience_s: float) -> None:
        self._connection = connection
        self._patience_s = patience_s

    def send(self, requests: Sequence[Request]) -> None:
        """Returns when the server has taken all. No two may be of one document: those that are tried again would come after the others.

        Raises:
            SinkError: one is refused, or nothing is taken for long.
        """
        end, pause = time.monotonic() + self._patience_s, _FIRST_PAUSE_S
        while requests:
            left, why = self._try(requests)
            if not left:
                return
            if len(left) < len(requests):
                end, pause = time.monotonic() + self._patience_s, _FIRST_PAUSE_S
            elif time.monotonic() > end:
                raise why
            requests = left
            time.sleep(pause)
            pause = min(_LONGEST_PAUSE_S, pause * 2)

    def _try(self, requests: Sequence[Request]) -> tuple[Sequence[Request], SinkError]:
        """Those that are to be tried again, and why."""
        try:
            answer = self._connection.ask("POST", "/_bulk", b"".join(request.lines for request in requests))
        except Lost as error:
            return requests, error
        if answer.status_code == TOO_LARGE:
            return self._try_halves(requests)
        found = as_json(answer)
        items = found.get("items") if isinstance(found, dict) else None
        if not isinstance(items, list) or len(items) != len(requests):
            raise stranger(answer)
        nothing = SinkError("")
        if not found.get("errors"):
            return (), nothing
        failed = [(request, self._refusal(request, item)) for request, item in zip(requests, items, strict=True)]
        left = [(request, refusal) for request, refusal in failed if refusal is not None]
        return [request for request, _ in left], left[0][1] if left else nothing

    def _try_halves(self, requests: Sequence[Request]) -> tuple[Sequence[Request], SinkError]:
        if len(requests) == 1:
            raise SinkError(
                f"{self._connection.cluster.shown}: {requests[0].shown} has {len(requests[0].lines):,} bytes, more than the server takes (413)",
                remedy="raise the server's http.max_content_length, or write less into a document",
            )
        middle = len(requests) // 2
        first, why = self._try(requests[:middle])
        second, why_second = self._try(requests[middle:])
        return [*first, *second], why if first else why_second

    def _refusal(self, request: Request, item: Any) -> SinkError | None:
        """Why it is to be tried again; None: it is done.

        Raises:
            SinkError: it is refused for good.
        """
        about = item.get(request.operation, {})
        status, error = int(about.get("status", 0)), about.get("error")
        if error is None:
            if status < 300 or (status == _NOT_FOUND and request.operation == "delete"):
                return None
            error = {"type": "unknown", "reason": str(about)}
        if status == _CONFLICT and (request.operation == "create" or request.is_versioned):
            return None  # it is there, or what is newer
        kind, reason = str(error.get("type", "")), str(error.get("reason", ""))
        cause = error.get("caused_by")
        if isinstance(cause, dict) and cause.get("reason"):
            reason += f": {cause['reason']}"
        remedy = next(
            (remedy for kinds, remedy in _REMEDIES if kind in kinds), "correct what the job asks of the server"
        )
        refusal = SinkError(
            f"{self._connection.cluster.shown}: {request.shown} is refused: {kind} ({status}): {reason[:500]}",
            remedy=remedy,
        )
        if status in _PASSING_STATUS or kind in _PASSING_KINDS or status == _CONFLICT:
            return refusal
        raise refusal
