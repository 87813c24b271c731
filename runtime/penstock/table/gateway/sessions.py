"""`Sessions`: the open sessions of the gateway."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping

from penstock.common.errors import InvalidJob
from penstock.rest.errors import NotFound
from penstock.table.client.client_session import ClientSession
from penstock.table.client.statements import split
from penstock.table.gateway.operations import Operation
from penstock.table.table_result import TableResult

MAX_SESSIONS = 20
"""Maximum number of open sessions. Each has a Java process with up to 1 GB."""
MAX_OPERATIONS = 100
"""Maximum number of operations of a session that are not closed."""
IDLE_S = 600.0
"""Time in seconds without a request after which a session without running queries is closed, as in Flink."""


class GatewaySession:
    """An open session: a client session, and its operations.

    Args:
        properties: options that are set at the start.
    """

    def __init__(self, client: ClientSession, properties: Mapping[str, str]) -> None:
        self.id = str(uuid.uuid4())
        self.client = client
        self.properties = dict(properties)
        self.used_at = time.monotonic()
        self._lock = threading.Lock()
        self._operations: dict[str, Operation] = {}
        self._executing = threading.Lock()
        self._has_properties = False

    def submit(self, statement: str, properties: Mapping[str, str]) -> Operation:
        """Execute a statement in a thread.

        Raises:
            InvalidJob: this is not one statement, or the session has too many operations.
        """
        found = split(statement).all
        if len(found) != 1:
            raise InvalidJob(f"SQL: one statement is expected, got {len(found)}", remedy="send each statement alone")
        operation = Operation(lambda: self.execute(statement.strip().rstrip(";"), properties))
        with self._lock:
            if len(self._operations) >= MAX_OPERATIONS:
                raise InvalidJob(
                    f"SQL: the session has {MAX_OPERATIONS} operations",
                    remedy="close operations whose results are fetched",
                )
            self._operations[operation.id] = operation
        return operation.start()

    def execute(self, statement: str, properties: Mapping[str, str] | None = None) -> TableResult:
        """Execute a statement after the options of the session."""
        with self._executing:
            if not self._has_properties:
                self._set(self.properties)
                self._has_properties = True
            self._set(properties or {})
            return self.client.execute(statement)

    def operation(self, id: str) -> Operation:
        with self._lock:
            found = self._operations.get(id)
        if found is None:
            raise NotFound(f"the operation {id} does not exist", remedy="execute the statement again")
        return found

    def close_operation(self, id: str) -> None:
        self.operation(id).cancel()
        with self._lock:
            self._operations.pop(id, None)

    @property
    def is_active(self) -> bool:
        with self._lock:
            return any(operation.is_active for operation in self._operations.values())

    def close(self) -> None:
        """Cancel the queries and end the planner. Jobs that INSERT statements have started continue."""
        with self._lock:
            operations = list(self._operations.values())
        for operation in operations:
            operation.cancel()
        self.client.close()

    def _set(self, properties: Mapping[str, str]) -> None:
        for key, value in properties.items():
            self.client.set_option(key, value)


class Sessions:
    """The open sessions.

    Args:
        create: function that returns a new client session.
    """

    def __init__(self, create: Callable[[], ClientSession]) -> None:
        self._create = create
        self._lock = threading.Lock()
        self._sessions: dict[str, GatewaySession] = {}

    def open(self, properties: Mapping[str, str]) -> GatewaySession:
        """Open a session.

        Raises:
            InvalidJob: too many sessions are open.
        """
        self.close_idle()
        with self._lock:
            if len(self._sessions) >= MAX_SESSIONS:
                raise InvalidJob(f"SQL: {MAX_SESSIONS} sessions are open", remedy="close sessions that are not needed")
            session = GatewaySession(self._create(), properties)
            self._sessions[session.id] = session
        return session

    def session(self, id: str) -> GatewaySession:
        with self._lock:
            found = self._sessions.get(id)
        if found is None:
            raise NotFound(
                f"the session {id} does not exist, or was closed after {IDLE_S:.0f} s", remedy="open a new session"
            )
        found.used_at = time.monotonic()
        return found

    def close(self, id: str) -> None:
        session = self.session(id)
        with self._lock:
            self._sessions.pop(id, None)
        session.close()

    def close_idle(self) -> None:
        """Close sessions that no client has used for a time."""
        now = time.monotonic()
        with self._lock:
            idle = [found for found in self._sessions.values() if now - found.used_at > IDLE_S and not found.is_active]
            for session in idle:
                del self._sessions[session.id]
        for session in idle:
            session.close()

    def close_all(self) -> None:
        with self._lock:
            sessions = list(self._sessions.values())
            self._sessions.clear()
        for session in sessions:
            session.close()
