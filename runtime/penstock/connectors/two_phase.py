"""Exactly-once into systems with transactions: `TwoPhaseCommitSinkFunction` (K6, K7).

    open            a transaction is begun before the first record
    invoke          records are written into it
    barrier         pre_commit: everything is flushed, nothing more is written to it; its handle goes into the checkpoint;
                    the next transaction is begun
    complete        commit, by the JobManager; again after a restore, for it may or may not have happened
    failure         the transaction that was open when the restored checkpoint was taken is aborted

A handle is JSON-able and all that is needed to commit or abort from another process, after a crash. The transaction must
outlive the longest recovery (K19).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from penstock.common.errors import PenstockError, SinkError
from penstock.common.program.user_frames import user_line
from penstock.connectors.function import RecordContext, clock_of
from penstock.connectors.json_able import json_able
from penstock.connectors.sink import Committer, Sink, SinkWriter, WriterContext
from penstock.functions.runtime_context import close_function, open_function

if TYPE_CHECKING:
    from collections.abc import Callable

Transaction = Any
"""A JSON-able handle."""


class TwoPhaseCommitSinkFunction(ABC):
    """Base of the user's class. `open(runtime_context)` and `close()` are called in the subtask that writes."""

    @abstractmethod
    def begin_transaction(self) -> Transaction:
        """Begin a transaction and return its handle, which the other methods get in JSON's types: a tuple as a list."""

    @abstractmethod
    def invoke(self, transaction: Transaction, value: Any, context: RecordContext) -> None:
        """Write a record into it."""

    @abstractmethod
    def pre_commit(self, transaction: Transaction) -> None:
        """Flush: after this `commit` must succeed, also from another process after a crash."""

    @abstractmethod
    def commit(self, transaction: Transaction) -> None:
        """Make it visible. Idempotent: a transaction that is committed already is no error."""

    @abstractmethod
    def abort(self, transaction: Transaction) -> None:
        """Drop it. May be called again, and for a transaction that has gone."""

    def recover_and_commit(self, transaction: Transaction) -> None:
        """`commit` after a restore."""
        self.commit(transaction)

    def recover_and_abort(self, transaction: Transaction) -> None:
        """`abort` after a restore."""
        self.abort(transaction)

    def open(self, runtime_context: Any) -> None:  # noqa: B027 - optional
        """Connect."""

    def close(self) -> None:  # noqa: B027 - optional
        """Disconnect."""


class TwoPhaseCommitSink(Sink):
    """Runs a `TwoPhaseCommitSinkFunction`."""

    def __init__(self, function: TwoPhaseCommitSinkFunction) -> None:
        self.function = function

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        return TwoPhaseCommitWriter(self.function, context, restored)

    def create_committer(self, object_store_options: dict[str, Any], *, job_id: str = "", uid: str = "") -> Committer:
        return TransactionCommitter(self.function)


class TwoPhaseCommitWriter(SinkWriter):
    """Always one open transaction. One without records at a barrier is dropped for a new one, so that none grows old."""

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
            handle, f"the handle that {type(self._function).__name__}.begin_transaction gives"
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
        """The open transaction: whoever restores this checkpoint aborts it."""
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
            remedy="make the system reachable; the transaction is tried again after the next restore",
        ) from error
