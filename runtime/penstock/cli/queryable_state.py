"""A client for state that is looked up from outside (`docs/state.md`): by a program that serves what a job knows.

with QueryableStateClient("http://jobmanager:8081", token) as client:
    client.get("clicks", "clicks per user", "ada")
"""

from __future__ import annotations

import json
import random
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from penstock.cli.client import Consistency, RestClient
from penstock.cli.errors import RequestFailed, UsageError
from penstock.common.errors import NotNow

if TYPE_CHECKING:
    from types import TracebackType

    import httpx

    from penstock.rest.models import StateEntryList

_AT_ONCE = 8
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0


class QueryableStateClient:
    """Asks the JobManager at `url`; may be used from several threads at once.

    Args:
        url: of the REST API.
        token: bearer token; that of a reader will do.
        timeout: seconds for each request.
        consistency: `checkpoint`: as of the newest one; `live`: what the task that has the key holds (`docs/state.md` tells what that means).
        patience: seconds for which a look-up that tasks cannot answer at the moment (the job restarts) is tried again.
        transport: for tests.

    Every method raises:
        MasterUnreachable: nobody answers, or something else than a JobManager.
        RequestFailed: there is no such job or state, no checkpoint yet, or the key is of another type; says what there is.
            With the code `NOT_NOW`: tasks could not answer all the time.
        UsageError: JSON has no such key.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = 10.0,
        consistency: Consistency = "checkpoint",
        patience: float = 30.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._rest = RestClient(url, token, timeout=timeout, transport=transport)
        self._consistency = consistency
        self._patience = patience
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="queryable-state")
        self._ids: dict[str, str] = {}

    def get(self, job: str, name: str, key: Any, *, uid: str | None = None) -> Any:
        """The value of a key as JSON has it: a list state's as a list, a map state's as a dict; None: it has none.

        Args:
            job: its id, the beginning of that, or its name.
            name: the queryable name, or the state's own.
            key: a text, number, bool or None, or a tuple or list of such.
            uid: the operator, if several have a state of that name.
        """
        found = [entry for entry in self.entries(job, name, key, uid=uid) if "namespace" not in entry]
        return found[0].get("value") if found else None

    def get_kv_state(self, job: str, name: str, key: Any, *, uid: str | None = None) -> Future[Any]:
        """As `get`, without waiting: many may be under way."""
        return self._pool.submit(self.get, job, name, key, uid=uid)

    def entries(self, job: str, name: str, key: Any, *, uid: str | None = None) -> list[dict[str, Any]]:
        """All entries of a key: one for each window, of a state of windows (`namespace`)."""
        return self.look_up(job, name, key, uid=uid).entries

    def look_up(self, job: str, name: str, key: Any, *, uid: str | None = None) -> StateEntryList:
        """The same with the checkpoint that it is of, or the attempt whose task has answered, and its time (ms)."""
        try:
            text = json.dumps(key)
        except TypeError:
            raise UsageError(
                f"a {type(key).__name__} cannot be asked for as a key: {key!r}",
                remedy="give a text, number, bool or None, or a tuple of such",
            ) from None
        return self._patiently(self._id_of(job), name, text, uid)

    def _patiently(self, job_id: str, name: str, key: str, uid: str | None) -> StateEntryList:
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
        """A name is looked up once: another job of that name is asked for by another client, or by its id."""
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
