"""Exactly-once writes into systems with transactions: `TwoPhaseCommitSinkFunction`.

    open            the function begins a transaction before the first record
    invoke          the function writes records into the transaction
    barrier         pre_commit flushes everything, and no more records go into the transaction. The checkpoint
                    stores the transaction's handle. The next transaction begins
    complete        the JobManager commits the transaction. It commits again after a restore, because the first commit may
                    not have happened
    failure         the writer aborts the transaction that was open when the restored checkpoint was taken

A handle must be encodable as JSON. It contains all that another process needs to commit or abort after a crash. The timeout of the
transaction must be longer than the longest recovery.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from penstock.common.errors import PenstockError, SinkError
from penstock.common.program.user_frames import user_line
from penstock.connectors.core.function import RecordContext, clock_of
from penstock.connectors.core.json_able import json_able
from penstock.connectors.core.sink import Committer, Sink, SinkWriter, WriterContext
from penstock.functions.runtime_context import close_function, open_function

if TYPE_CHECKING:
    from collections.abc import Callable

Transaction = Any
"""A handle that can be encoded as JSON."""


class TwoPhaseCommitSinkFunction(ABC):
    """Base class of the user's sink function. The subtask that writes calls `open(runtime_context)` and `close()`."""

    @abstractmethod
    def begin_transaction(self) -> Transaction:
        """Begin a transaction and return its handle. The other methods get the handle in JSON's types: a tuple as a list."""

    @abstractmethod
    def invoke(self, transaction: Transaction, value: Any, context: RecordContext, /) -> None:
        """Write a record into the transaction."""

    @abstractmethod
    def pre_commit(self, transaction: Transaction, /) -> None:
        """Flush the transaction. After this call `commit` must succeed, also from another process after a crash."""

    @abstractmethod
    def commit(self, transaction: Transaction, /) -> None:
        """Make the transaction visible. This is idempotent: a transaction that is already committed is not an error."""

    @abstractmethod
    def abort(self, transaction: Transaction, /) -> None:
        """Drop the transaction. This is idempotent: a transaction that no longer exists is not an error."""

    def recover_and_commit(self, transaction: Transaction, /) -> None:
        """Call `commit` after a restore."""
        self.commit(transaction)

    def recover_and_abort(self, transaction: Transaction, /) -> None:
        """Call `abort` after a restore."""
        self.abort(transaction)

    def open(self, runtime_context: Any, /) -> None:  # noqa: B027 - optional
        """Connect."""

    def close(self) -> None:  # noqa: B027 - optional
        """Disconnect."""


class TwoPhaseCommitSink(Sink):
    """A sink that runs a `TwoPhaseCommitSinkFunction`."""

    def __init__(self, function: TwoPhaseCommitSinkFunction) -> None:
        self.function = function

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        return TwoPhaseCommitWriter(self.function, context, restored)

    def create_committer(self, object_store_options: dict[str, Any], *, job_id: str = "", uid: str = "") -> Committer:
        return TransactionCommitter(self.function)


class TwoPhaseCommitWriter(SinkWriter):
    """A writer that always has one open transaction. At a barrier it also replaces an empty transaction, so that no transaction times out."""

    def __init__(self, function: TwoPhaseCommitSinkFunction, context: WriterContext, restored: list[Any]) -> None:
        self._function = function
        self._record = RecordContext(clock_of(context.operator))
        if context.operator is not None:
            open_function(function, context.operator)
        for transaction in restored:
            _explained("abort", transaction, function.recover_and_abort)
        self._transaction: Transaction = None
        self._begin()

    def _begin(self) -> None:
        handle = self._function.begin_transaction()
        self._transaction = json_able(
            handle, f"the handle that {type(self._function).__name__}.begin_transaction returned"
        )
        self._is_empty = True

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        invoke, transaction, record = self._function.invoke, self._transaction, self._record
        record.watermark = watermark
        self._is_empty = self._is_empty and not values
        for index, value in enumerate(values):
            record.time = None if timestamps is None else timestamps[index]
            invoke(transaction, value, record)

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        transaction, is_empty = self._transaction, self._is_empty
        if is_empty:
            _explained("abort", transaction, self._function.abort)
        else:
            _explained("pre-commit", transaction, self._function.pre_commit)
        self._begin()
        return [] if is_empty else [transaction]

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        """Return the open transaction. A restore of this checkpoint aborts it."""
        return [self._transaction]

    def close(self) -> None:
        close_function(self._function)


class TransactionCommitter(Committer):
    def __init__(self, function: TwoPhaseCommitSinkFunction) -> None:
        self._function = function

    def commit(self, committables: list[Any]) -> None:
        for transaction in committables:
            self.check_wanted()
            _explained("commit", transaction, self._function.recover_and_commit)

    def abort(self, committables: list[Any]) -> None:
        for transaction in committables:
            self.check_wanted()
            _explained("abort", transaction, self._function.recover_and_abort)


def _explained(action: str, transaction: Transaction, call: Callable[[Transaction], None]) -> None:
    try:
        call(transaction)
    except PenstockError:
        raise
    except Exception as error:
        raise SinkError(
            f"cannot {action} transaction {transaction!r}: {type(error).__name__}: {error}{user_line(error)}",
            remedy="make the system reachable; the job retries the transaction after the next restore",
        ) from error
