"""Commits transactions in the JobManager, and aborts those that nothing names any more.

A transaction that is left open holds up every `read_committed` reader of its partitions until the broker gives up on it. So
before an attempt reads anything, everything of this sink's earlier attempts that no snapshot names is aborted, however many
subtasks they had: the cluster is asked which ids of this sink's there are.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

from penstock.common.errors import SinkError
from penstock.connectors.kafka.client import Properties, explained, package
from penstock.connectors.kafka.sink.coordinator_client import CoordinatorClient
from penstock.connectors.kafka.sink.transaction import Owner, Transaction, outcome
from penstock.connectors.sink import Committer

logger = logging.getLogger(__name__)

_PATIENCE_S = 60.0
"""How long a coordinator may be away before a commit fails the job over, which commits once more."""


class KafkaCommitter(Committer):
    """
    Args:
        takes_over: transactions of another job under the same prefix are aborted; else they are an error.
        accepts_unknown: a transaction that the cluster has forgotten counts as committed.
    """

    def __init__(self, owner: Owner, properties: Properties, *, takes_over: bool, accepts_unknown: bool) -> None:
        self._owner = owner
        self._properties = properties
        self._takes_over = takes_over
        self._accepts_unknown = accepts_unknown
        self._client = CoordinatorClient(properties, _PATIENCE_S, self.check_wanted)

    def commit(self, committables: list[Any]) -> None:
        """
        Raises:
            SinkError: a transaction is lost, or the cluster does not answer; says which records, and what to do.
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

    def _problem(self, transaction: Transaction, code: int) -> SinkError | None:
        """What is wrong with a transaction whose commit was refused; None: it was committed before."""
        if code == package("aiokafka.errors").TransactionalIdAuthorizationFailed.errno:
            error = package("aiokafka.errors").for_code(code)()
            what = f"transaction {transaction.id!r} cannot be committed"
            return explained(SinkError, what, error, self._properties)  # type: ignore[return-value]
        became = outcome(transaction, self._client.describe(transaction.id))
        if became == "committed":
            return None
        began = datetime.fromtimestamp(transaction.began_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        what = f"transaction {transaction.id!r} (producer {transaction.producer_id}, epoch {transaction.epoch}), begun {began}"
        count = f"{transaction.records} records"
        if became == "unknown":
            if self._accepts_unknown:
                logger.warning(
                    "%s is not known to the cluster any more; it counts as committed, as was asked for", what
                )
                return None
            return SinkError(
                f"{what}, is not known to the cluster any more: nobody can tell whether its {count} are there",
                remedy="ids are forgotten after transactional.id.expiration.ms (7 days). If this snapshot is that old, its records "
                "were committed when it was taken, or never; look at the topic, then set "
                "KafkaSinkBuilder.set_unknown_transactions('accept')",
            )
        if became == "timed out":
            return SinkError(
                f"{what}, was aborted by the broker because it was open for longer than transaction.timeout.ms "
                f"({transaction.timeout_ms} ms): its {count} are lost, and the checkpoint that promised them is complete",
                remedy="restore an older checkpoint or savepoint, so that they are made again (readers see what came after it twice), "
                "and raise transaction.timeout.ms above the longest time from a record to the commit after a recovery",
            )
        if became == "aborted":
            return SinkError(
                f"{what}, was aborted by somebody else: its {count} are lost, and the checkpoint that promised them is complete",
                remedy="restore an older checkpoint or savepoint, so that they are made again; find out who aborts transactions "
                f"(kafka-transactions.sh, another program with the prefix {self._owner.prefix!r})",
            )
        return SinkError(
            f"{what}, cannot be committed: the broker answers {code} and calls it open",
            remedy="the job tries again; see what the broker's log says",
        )

    def abort(self, committables: list[Any]) -> None:
        self._client.fence({committable["id"] for committable in committables})

    def discard_unreferenced(self, keep: list[Any], below_attempt: int | None = None) -> None:
        """
        Raises:
            SinkError: another job's transactions are open under the same prefix.
        """
        kept = {Transaction.of(committable).key for committable in keep}
        states = self._client.find(f"{self._owner.prefix}-")
        attempts = {id: attempt for id in states if (attempt := self._owner.attempt_of(id)) is not None}
        earlier = {id: attempt for id, attempt in attempts.items() if below_attempt is None or attempt < below_attempt}
        newest = max(earlier.values(), default=0)
        suspects = [id for id, attempt in earlier.items() if attempt == newest or _may_be_open(states[id])]
        others = [id for id in states if self._owner.is_of_another_job(id) and _may_be_open(states[id])]
        known = {found.id: found for found in self._client.describe_all([*suspects, *others])}
        named = {id for id, found in known.items() if (id, found.producer_id, found.epoch) in kept}
        strangers = [id for id in others if id in known and known[id].is_open and id not in named]
        if strangers and not self._takes_over:
            raise SinkError(
                f"{len(strangers)} transactions of another job are open under the prefix {self._owner.prefix!r}: {strangers[0]!r}, …",
                remedy="give every job a transactional_id_prefix of its own. If that job is dead and this one follows it, wait for its "
                f"transaction.timeout.ms ({known[strangers[0]].timeout_ms} ms), or set KafkaSinkBuilder.set_takes_over(True)",
            )
        doomed = [id for id in [*suspects, *strangers] if id in known and id not in named]
        if doomed:
            self._client.fence(doomed)
            logger.info("%d transactional ids of earlier attempts are fenced", len(doomed))

    def close(self) -> None:
        self._client.close()


def _may_be_open(state: str) -> bool:
    return state not in ("Empty", "CompleteCommit", "CompleteAbort", "Dead")
