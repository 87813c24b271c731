"""Bulks of writes, and what becomes of each of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from penstock.common.errors import SinkError
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

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 3.0
_RACES = 5
"""Two that make the same document at the same time: one is told that it is there, and replaces it the next time."""


class Bulk:
    """
    Args:
        patience_s: how long nothing may go forward until the job fails over.
    """

    def __init__(self, server: Server, database: str, collection: str, patience_s: float) -> None:
        self._server = server
        self._database = database
        self._name = collection
        self._patience_s = patience_s
        self._client: Any = None

    def send(self, writes: Sequence[Write]) -> None:
        """Returns when the server has taken all. No two may be of one document: those that are tried again would come after the others.

        Raises:
            SinkError: one is refused, or nothing is taken for long.
        """
        end, pause = time.monotonic() + self._patience_s, _FIRST_PAUSE_S
        raced: Counter[bytes] = Counter()
        while writes:
            left, why = self._try(writes, raced)
            if not left:
                return
            if len(left) < len(writes):
                end, pause = time.monotonic() + self._patience_s, _FIRST_PAUSE_S
            elif time.monotonic() > end:
                raise why
            writes = left
            time.sleep(pause)
            pause = min(_LONGEST_PAUSE_S, pause * 2)

    def _try(self, writes: Sequence[Write], raced: Counter[bytes]) -> tuple[Sequence[Write], SinkError]:
        """Those that are to be tried again, and why."""
        errors = package("pymongo.errors")
        try:
            if self._client is None:
                self._client = self._server.connect(SinkError)
            collection = self._client[self._database][self._name]
            try:
                collection.bulk_write([write.request for write in writes], ordered=False)
            except KeyError:  # FerretDB 1 leaves out a count when it refuses one, and pymongo loses what was refused
                return self._try_singly(collection, writes, raced)
            return (), SinkError("")
        except errors.BulkWriteError as error:
            return self._left(writes, error.details, raced)
        except (errors.PyMongoError, OSError, SinkError) as error:
            cause = error.__cause__ if isinstance(error, SinkError) else error
            told = error if isinstance(error, SinkError) else self._explained(f"cannot be written: {error}", error)
            if cause is None or not is_passing(cause):
                self.close()
                raise told from cause
            return writes, told

    def _try_singly(
        self, collection: Any, writes: Sequence[Write], raced: Counter[bytes]
    ) -> tuple[Sequence[Write], SinkError]:
        left, why = [], SinkError("")
        for write in writes:
            try:
                write.send_to(collection)
            except package("pymongo.errors").WriteError as error:
                why = self._refusal(write, {**error.details, "code": error.code}, raced)
                left.append(write)
        return left, why

    def _refusal(self, write: Write, error: Any, raced: Counter[bytes]) -> SinkError:
        """
        Raises:
            SinkError: it is refused for good.
        """
        code = error.get("code")
        refusal = SinkError(
            f"{self._server.shown}: document {write.shown} of {self._database}.{self._name} is refused: {words_of(error)}",
            remedy=remedy_of(code),
        )
        raced[write.key] += code == DUPLICATE_KEY
        may_race = code == DUPLICATE_KEY and write.upserts and raced[write.key] < _RACES
        if not may_race and not passes(code):
            raise refusal
        return refusal

    def _left(self, writes: Sequence[Write], details: Any, raced: Counter[bytes]) -> tuple[Sequence[Write], SinkError]:
        left, why = [], SinkError("")
        for error in details.get("writeErrors", ()):
            write = writes[error["index"]]
            why = self._refusal(write, error, raced)
            left.append(write)
        for error in details.get("writeConcernErrors", ()):
            code = error.get("code")
            why = SinkError(
                f"{self._server.shown}: writes to {self._database}.{self._name} are not confirmed: {words_of(error)}",
                remedy=remedy_of(code),
            )
            if not passes(code):
                raise why
            left = list(writes)
        return left, why

    def _explained(self, what: str, error: BaseException) -> SinkError:
        return SinkError(
            f"{self._server.shown}: {self._database}.{self._name} {what[:700]}",
            remedy=remedy(error),
        )

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()
