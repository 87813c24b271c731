"""A transaction: its name, the data that a checkpoint keeps of it, and its outcome.

**One epoch, one transaction.** The broker gives a transactional id a new epoch (InitProducerId) before every transaction. So
(id, producer id, epoch) identifies one transaction for ever. A commit that is sent twice, or arrives late, commits the same
transaction again or is refused. It never affects a later transaction. Brokers guarantee this from `transaction.version` 2 on (KIP-890).
This design has the same guarantee on all brokers.

**The id contains its owner**: `PREFIX-JOB-SINK-ATTEMPT-SUBTASK-INDEX`. An attempt uses no id of another attempt. It reuses one
of its ids only after the JobManager has committed everything that was written under this id. So a restore can determine the outcome of a
transaction whose epoch the broker refuses to commit:

    same epoch and producer id, PrepareCommit or CompleteCommit               it was committed
    epoch one higher, PrepareAbort, PrepareEpochFence or CompleteAbort        the broker has aborted it after its timeout
    same epoch, Empty, PrepareAbort or CompleteAbort                          another client has aborted it
    otherwise a higher epoch, or another producer id (epochs were used up)    the id was reused, so it was committed
    no such id                                                                the broker has forgotten it
"""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple

Outcome = Literal["open", "committed", "aborted", "timed out", "unknown"]

_ABORTED = ("PrepareAbort", "CompleteAbort", "PrepareEpochFence")
_COMMITTED = ("PrepareCommit", "CompleteCommit")
_NUMBERS = re.compile(r"(\d+)-(\d+)-(\d+)")
_OF_A_JOB = re.compile(r"([0-9a-f]{32})-.+-\d+-\d+-\d+")
"""Pattern of the text after the prefix: a job's id, a sink's uid, three numbers."""


class Owner(NamedTuple):
    """The owner of transactions: a sink of a job."""

    prefix: str
    job_id: str
    uid: str

    @property
    def names(self) -> str:
        """Return the text with which all transactional ids of this owner begin."""
        return f"{self.prefix}-{self.job_id}-{self.uid}-"

    def name(self, attempt: int, subtask: int, index: int) -> str:
        """Return a transactional id.

        >>> Owner("pay", "j1", "out").name(3, 0, 1)
        'pay-j1-out-3-0-1'
        """
        return f"{self.names}{attempt}-{subtask}-{index}"

    def attempt_of(self, transactional_id: str) -> int | None:
        """Return the attempt that uses this id, or None if the id has another owner.
        >>> Owner("pay", "j1", "out").attempt_of("pay-j1-out-3-0-1"), Owner("pay", "j1", "out").attempt_of("pay-j1-out2-3-0-1")
        (3, None)
        """
        if not transactional_id.startswith(self.names):
            return None
        numbers = _NUMBERS.fullmatch(transactional_id[len(self.names) :])
        return None if numbers is None else int(numbers[1])

    def is_of_another_job(self, transactional_id: str) -> bool:
        """Return True if another job uses the prefix. A job with a longer prefix, `pay-eu` instead of `pay`, does not use it.
        >>> owner, other = Owner("pay", "0" * 32, "out"), "f" * 32
        >>> [owner.is_of_another_job(f"pay-{rest}-3-0-1") for rest in (f"{other}-out", f"{owner.job_id}-out", f"eu-{other}-out")]
        [True, False, False]
        """
        start = f"{self.prefix}-"
        if not transactional_id.startswith(start):
            return False
        found = _OF_A_JOB.fullmatch(transactional_id[len(start) :])
        return found is not None and found[1] != self.job_id


class Transaction(NamedTuple):
    """The data that a checkpoint keeps of a pre-committed transaction."""

    id: str
    producer_id: int
    epoch: int
    records: int
    began_ms: int
    timeout_ms: int

    def to_json(self) -> dict[str, Any]:
        return self._asdict()

    @classmethod
    def of(cls, committable: dict[str, Any]) -> Transaction:
        return cls(**committable)

    @property
    def key(self) -> tuple[str, int, int]:
        return self.id, self.producer_id, self.epoch


class Description(NamedTuple):
    """A broker's description of a transactional id."""

    id: str
    state: str
    producer_id: int
    epoch: int
    start_ms: int
    timeout_ms: int

    @property
    def is_open(self) -> bool:
        return self.state in ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


def outcome(transaction: Transaction, now: Description | None) -> Outcome:
    """Return the outcome of a transaction, given the broker's present description of its id.
    >>> was = Transaction("a", 7, 3, 10, 0, 0)
    >>> [outcome(was, Description("a", state, 7, epoch, 0, 0)) for state, epoch in
    ...     [("Ongoing", 3), ("CompleteCommit", 3), ("CompleteAbort", 3), ("CompleteAbort", 4), ("Empty", 4), ("Ongoing", 4)]]
    ['open', 'committed', 'aborted', 'timed out', 'committed', 'committed']
    >>> outcome(was, Description("a", "Empty", 8, 0, 0, 0)), outcome(was, None)
    ('committed', 'unknown')
    """
    if now is None:
        return "unknown"
    if now.producer_id != transaction.producer_id or now.epoch > transaction.epoch + 1:
        return "committed"
    if now.epoch == transaction.epoch + 1:
        return "timed out" if now.state in _ABORTED else "committed"
    if now.state == "Ongoing":
        return "open"
    return "committed" if now.state in _COMMITTED else "aborted"
