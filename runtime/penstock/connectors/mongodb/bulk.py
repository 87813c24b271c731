"""Bulks of writes, and the result of each write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from penstock.common.errors import SinkError
from penstock.connectors.core.bulk import Bulk
from penstock.connectors.mongodb.client import (
    DUPLICATE_KEY,
    Server,
    is_passing,
    package,
    passes,
    remedy,
    remedy_of,
    words_of,
)
from penstock.connectors.mongodb.operations import Write

_RACES = 5
"""Maximum number of attempts for a write that gets a duplicate key.

If two writers insert the same document at the same time, one writer gets the error "duplicate key". The next attempt of this writer
replaces the document.
"""


class MongoBulk(Bulk[Write]):
    """The bulk writes of one sink."""

    def __init__(self, server: Server, database: str, collection: str, patience_s: float) -> None:
        super().__init__(patience_s)
        self._server = server
        self._database = database
        self._name = collection
        self._client: Any = None
        self._raced: Counter[bytes] = Counter()
        """Number of "duplicate key" errors of each document."""

    def send(self, writes: Sequence[Write]) -> None:
        self._raced.clear()
        super().send(writes)

    def _try(self, writes: Sequence[Write]) -> tuple[Sequence[Write], SinkError]:
        errors = package("pymongo.errors")
        try:
            if self._client is None:
                self._client = self._server.connect(SinkError)
            collection = self._client[self._database][self._name]
            try:
                collection.bulk_write([write.request for write in writes], ordered=False)
            except KeyError:
                # If FerretDB 1 rejects a write, its answer lacks a count. pymongo then raises a KeyError and does not report the rejected writes.
                return self._try_singly(collection, writes)
            return (), SinkError("")
        except errors.BulkWriteError as error:
            return self._unwritten(writes, error.details)
        except (errors.PyMongoError, OSError, SinkError) as error:
            cause = error.__cause__ if isinstance(error, SinkError) else error
            refusal = error if isinstance(error, SinkError) else self._explained(f"cannot be written: {error}", error)
            if cause is None or not is_passing(cause):
                self.close()
                raise refusal from cause
            return writes, refusal

    def _try_singly(self, collection: Any, writes: Sequence[Write]) -> tuple[Sequence[Write], SinkError]:
        unwritten, refusal = [], SinkError("")
        for write in writes:
            try:
                write.send_to(collection)
            except package("pymongo.errors").WriteError as error:
                refusal = self._refusal(write, {**error.details, "code": error.code})
                unwritten.append(write)
        return unwritten, refusal

    def _refusal(self, write: Write, error: Any) -> SinkError:
        """Return the error of a rejected write if the write can be retried.

        Raises:
            SinkError: a retry cannot help.
        """
        code = error.get("code")
        refusal = SinkError(
            f"{self._server.shown}: document {write.shown} of {self._database}.{self._name} is rejected: {words_of(error)}",
            remedy=remedy_of(code),
        )
        self._raced[write.key] += code == DUPLICATE_KEY
        may_race = code == DUPLICATE_KEY and write.upserts and self._raced[write.key] < _RACES
        if not may_race and not passes(code):
            raise refusal
        return refusal

    def _unwritten(self, writes: Sequence[Write], details: Any) -> tuple[Sequence[Write], SinkError]:
        unwritten, refusal = [], SinkError("")
        for error in details.get("writeErrors", ()):
            write = writes[error["index"]]
            refusal = self._refusal(write, error)
            unwritten.append(write)
        for error in details.get("writeConcernErrors", ()):
            code = error.get("code")
            refusal = SinkError(
                f"{self._server.shown}: writes to {self._database}.{self._name} are not confirmed: {words_of(error)}",
                remedy=remedy_of(code),
            )
            if not passes(code):
                raise refusal
            unwritten = list(writes)
        return unwritten, refusal

    def _explained(self, problem: str, error: BaseException) -> SinkError:
        return SinkError(
            f"{self._server.shown}: {self._database}.{self._name} {problem[:700]}",
            remedy=remedy(error),
        )

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()
