"""A client for queryable state (`docs/state.md`), for programs that read a job's state from outside.

The client is a context manager: `with QueryableStateClient(url, token) as client`. `client.get("clicks", "clicks per user",
"ada")` reads a state of the job `clicks` by its external name and key.
"""

from __future__ import annotations

import json
import random
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from penstock.cli.access.connection import client_tls
from penstock.cli.client import Consistency, RestClient
from penstock.cli.errors import RequestFailed, UsageError
from penstock.common.errors import NotNow

if TYPE_CHECKING:
    import os
    from types import TracebackType

    import httpx

    from penstock.rest.models import StateEntryList

_AT_ONCE = 8
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0


class QueryableStateClient:
    """Client of queryable state at the JobManager `url`. Several threads may use it at once.

    Args:
        url: URL of the REST API.
        token: bearer token. A reader's token is sufficient.
        timeout: seconds for each request.
        consistency: `checkpoint`: the state in the newest checkpoint; `live`: the state in the task that owns the key. `docs/state.md`
            describes the difference.
        patience: seconds for which a lookup is retried if the tasks cannot answer it, for example while the job restarts.
        ca_file: PEM file with the CAs of an https URL. None means the system's CAs.
        client_certificate: PEM file with a client certificate and its key, if the JobManager requires one.
        transport: transport, for tests.

    Every method raises:
        MasterUnreachable: there is no response, or the server is not a JobManager.
        RequestFailed: the job or the state does not exist, there is no checkpoint yet, or the key has another type. The error lists
            the alternatives. The code `NOT_NOW` means that tasks could not respond within the patience.
        UsageError: the key cannot be written as JSON.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = 10.0,
        consistency: Consistency = "checkpoint",
        patience: float = 30.0,
        ca_file: str | os.PathLike[str] | None = None,
        client_certificate: str | os.PathLike[str] | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._rest = RestClient(
            url, token, timeout=timeout, tls=client_tls(ca_file, client_certificate), transport=transport
        )
        self._consistency = consistency
        self._patience = patience
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="queryable-state")
        self._ids: dict[str, str] = {}

    def get(self, job: str, name: str, key: Any, *, uid: str | None = None) -> Any:
        """Return the value of a key as JSON: a list for list state, a dict for map state, None for a key without state.

        Args:
            job: id of the job, prefix of the id, or name.
            name: queryable name, or name of the state.
            key: a text, number, bool or None, or a tuple or list of these.
            uid: uid of the operator, if several have a state of that name.
        """
        found = [entry for entry in self.entries(job, name, key, uid=uid) if "namespace" not in entry]
        return found[0].get("value") if found else None

    def get_kv_state(self, job: str, name: str, key: Any, *, uid: str | None = None) -> Future[Any]:
        """Return a future of the value, without waiting. Many lookups may be in progress."""
        return self._pool.submit(self.get, job, name, key, uid=uid)

    def entries(self, job: str, name: str, key: Any, *, uid: str | None = None) -> list[dict[str, Any]]:
        """Return all entries of a key. The state of windows has one entry for each window (`namespace`)."""
        return self.look_up(job, name, key, uid=uid).entries

    def look_up(self, job: str, name: str, key: Any, *, uid: str | None = None) -> StateEntryList:
        """Return the entries with their time (ms) and their checkpoint, or the attempt whose task responded."""
        try:
            text = json.dumps(key)
        except TypeError:
            raise UsageError(
                f"a key of type {type(key).__name__} cannot be looked up: {key!r}",
                remedy="use a text, number, bool or None, or a tuple of these",
            ) from None
        return self._look_up_with_retry(self._id_of(job), name, text, uid)

    def _look_up_with_retry(self, job_id: str, name: str, key: str, uid: str | None) -> StateEntryList:
        deadline = time.monotonic() + self._patience
        pause = _FIRST_PAUSE_S
        while True:
            try:
                return self._rest.state_entries(job_id, name, key, uid=uid, consistency=self._consistency)
            except RequestFailed as refused:
                if refused.code != NotNow.code or time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(_LONGEST_PAUSE_S, 2 * pause)

    def _id_of(self, job: str) -> str:
        """Return the job's id. A name is resolved once. For a later job of the same name, use another client or the id."""
        found = self._ids.get(job)
        if found is None:
            found = self._ids[job] = self._rest.find_job(job).jid
        return found

    def close(self) -> None:
        self._pool.shutdown()
        self._rest.close()

    def __enter__(self) -> QueryableStateClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
