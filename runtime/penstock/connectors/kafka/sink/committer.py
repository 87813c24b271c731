"""The committer of Kafka transactions in the JobManager. It also aborts transactions that snapshots no longer name.

An open transaction blocks every `read_committed` reader of its partitions until the broker times it out. So before an attempt
reads anything, the committer aborts all transactions of earlier attempts of this sink that no snapshot names. It asks the
cluster for the sink's ids, so the number of earlier subtasks does not matter. A task without contact to its JobManager may later take
a new id, and leave a transaction open under this id. So the committer repeats the search from time to time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from penstock.common.errors import SinkError
from penstock.connectors.core.sink import Committer
from penstock.connectors.kafka.client import Properties, explained, package
from penstock.connectors.kafka.sink.coordinator_client import CoordinatorClient
from penstock.connectors.kafka.sink.transaction import Description, Owner, Transaction, outcome

logger = logging.getLogger(__name__)

SWEEP_S = 30.0
"""Interval in seconds of the search for transactions of earlier attempts, which block readers until then."""
_PATIENCE_S = 60.0
"""Seconds for which a coordinator may be unavailable. After that the job fails over, and commits once more."""


class KafkaCommitter(Committer):
    """A committer that ends transactions through their coordinators.

    Args:
        takes_over: abort transactions of another job under the same prefix. If False, such transactions are an error.
        accepts_unknown: treat a transaction that the cluster has forgotten as committed.
    """

    def __init__(self, owner: Owner, properties: Properties, *, takes_over: bool, accepts_unknown: bool) -> None:
        self._owner = owner
        self._properties = properties
        self._takes_over = takes_over
        self._accepts_unknown = accepts_unknown
        self._client = CoordinatorClient(properties, _PATIENCE_S, self.check_wanted)
        self._kept: dict[str, list[Transaction]] = {}
        """Transactional id -> the transactions that snapshots name."""
        self._below_attempt: int | None = None
        self._swept = time.monotonic()

    def commit(self, committables: list[Any]) -> None:
        """Commit the transactions.

        Raises:
            SinkError: a transaction is lost, or the cluster does not answer. The error names the records and the remedy.
        """
        self.check_wanted()
        transactions = [Transaction.of(committable) for committable in committables]
        codes = self._client.end_all([transaction.key for transaction in transactions], commit=True)
        lost = [
            problem
            for transaction, code in zip(transactions, codes, strict=True)
            if code and (problem := self._problem(transaction, code)) is not None
        ]
        if lost:
            raise lost[0]
        if self._below_attempt is not None and time.monotonic() >= self._swept + SWEEP_S:
            self._sweep()

    def _problem(self, transaction: Transaction, code: int) -> SinkError | None:
        """Return the error for a transaction whose commit was refused, or None if it was committed before."""
        if code == package("aiokafka.errors").TransactionalIdAuthorizationFailed.errno:
            error = package("aiokafka.errors").for_code(code)()
            problem = f"transaction {transaction.id!r} cannot be committed"
            return explained(SinkError, problem, error, self._properties)  # type: ignore[return-value]
        became = outcome(transaction, self._client.describe(transaction.id))
        if became == "committed":
            return None
        began = datetime.fromtimestamp(transaction.began_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        problem = f"transaction {transaction.id!r} (producer {transaction.producer_id}, epoch {transaction.epoch}), started {began}"
        count = f"{transaction.records} records"
        if became == "unknown":
            if self._accepts_unknown:
                logger.warning(
                    "the cluster no longer knows %s. The sink assumes that it was committed, as set_unknown_transactions('accept') requests",
                    problem,
                )
                return None
            return SinkError(
                f"the cluster no longer knows {problem}. It is unclear whether its {count} were written",
                remedy="the cluster forgets ids after transactional.id.expiration.ms (7 days). If this snapshot is that old, its records "
                "were either committed when it was taken, or never. Check whether the topic has them. Then set "
                "KafkaSinkBuilder.set_unknown_transactions('accept') to continue",
            )
        if became == "timed out":
            return SinkError(
                f"{problem}, was aborted by the broker because it was open for longer than transaction.timeout.ms "
                f"({transaction.timeout_ms} ms): its {count} are lost, and the checkpoint that promised them is complete",
                remedy="restore an older checkpoint or savepoint to write them again (readers see later records twice). "
                "Raise transaction.timeout.ms above the longest time from a record to the commit after a recovery",
            )
        if became == "aborted":
            return SinkError(
                f"{problem}, was aborted by another program: its {count} are lost, and the checkpoint that promised them is complete",
                remedy="restore an older checkpoint or savepoint to write them again. Find the program that aborts the transactions "
                f"(kafka-transactions.sh, or another program with the prefix {self._owner.prefix!r})",
            )
        return SinkError(
            f"{problem}, cannot be committed: the broker returned the error {code}, and the transaction is still open",
            remedy="check the log of the broker. The job retries",
        )

    def abort(self, committables: list[Any]) -> None:
        self._client.fence({committable["id"] for committable in committables})

    def discard_unreferenced(self, keep: list[Any], below_attempt: int | None = None) -> None:
        """Abort the transactions of earlier attempts that `keep` does not name.

        Raises:
            SinkError: another job's transactions are open under the same prefix.
        """
        self._kept = {}
        for transaction in map(Transaction.of, keep):
            self._kept.setdefault(transaction.id, []).append(transaction)
        self._below_attempt = below_attempt
        states = self._client.find(f"{self._owner.prefix}-")
        others = [id for id, state in states.items() if self._owner.is_of_another_job(id) and _may_be_open(state)]
        foreign = {found.id: found for found in self._unnamed(others) if found.is_open}
        if foreign and not self._takes_over:
            name, about = next(iter(foreign.items()))
            raise SinkError(
                f"{len(foreign)} transactions of another job are open under the prefix {self._owner.prefix!r}: {name!r}, …",
                remedy="give every job a separate transactional_id_prefix. If this job replaces that job and that job no longer runs, wait for its "
                f"transaction.timeout.ms ({about.timeout_ms} ms), or set KafkaSinkBuilder.set_takes_over(True)",
            )
        earlier = self._earlier(states)
        newest = max(earlier.values(), default=0)
        suspects = [id for id, attempt in earlier.items() if attempt == newest or _may_be_open(states[id])]
        self._fence([*(found.id for found in self._unnamed(suspects)), *foreign])
        self._swept = time.monotonic()

    def _sweep(self) -> None:
        """Abort new transactions of earlier attempts' tasks. An error does not affect the commit. It is logged, and the next sweep retries."""
        self._swept = time.monotonic()
        try:
            states = self._client.find(self._owner.names)
            suspects = [id for id in self._earlier(states) if _may_be_open(states[id])]
            self._fence([found.id for found in self._unnamed(suspects) if found.is_open])
        except SinkError as error:
            logger.warning(
                "transactions of earlier attempts cannot be listed now; the sink retries later: %s", error.message
            )

    def _earlier(self, ids: Iterable[str]) -> dict[str, int]:
        """Return the ids of this sink's earlier attempts, with the attempt of each."""
        attempts = {id: attempt for id in ids if (attempt := self._owner.attempt_of(id)) is not None}
        below = self._below_attempt
        return {id: attempt for id, attempt in attempts.items() if below is None or attempt < below}

    def _unnamed(self, ids: list[str]) -> list[Description]:
        """Return the ids that the cluster knows, except ids whose last transaction a snapshot names.

        Such a transaction may still be committed, or may be lost. If its id got a new epoch, its outcome could no
        longer be determined.
        """
        return [
            found
            for found in self._client.describe_all(ids)
            if not any(_is_last(transaction, found) for transaction in self._kept.get(found.id, ()))
        ]

    def _fence(self, ids: list[str]) -> None:
        if ids:
            self._client.fence(ids)
            logger.info("%d transactional ids of earlier attempts are fenced", len(ids))

    def close(self) -> None:
        self._client.close()


def _may_be_open(state: str) -> bool:
    return state not in ("Empty", "CompleteCommit", "CompleteAbort", "Dead")


def _is_last(transaction: Transaction, now: Description) -> bool:
    return transaction.key == (now.id, now.producer_id, now.epoch) or outcome(transaction, now) == "timed out"
