"""A transaction: what it is called, what is kept of it, and what became of it.

**One epoch, one transaction.** A transactional id is given a new epoch by its broker (InitProducerId) before every transaction.
So (id, producer id, epoch) names one transaction for ever: a commit that is sent twice, or arrives late, commits that one again
or is refused, and never touches what came after it. Brokers promise that from `transaction.version` 2 on (KIP-890); here it
holds on all of them.

**An id says who it belongs to**: `PREFIX-JOB-SINK-ATTEMPT-SUBTASK-INDEX`. An attempt uses no id of another one, and takes one of
its own anew only when the JobManager has committed what was written under it. So whoever restores can tell what became of a
transaction whose epoch the broker refuses to commit:

    epoch and producer id as they were, PrepareCommit or CompleteCommit       it was committed
    epoch one higher, PrepareAbort, PrepareEpochFence or CompleteAbort        the broker has aborted it, for it took too long
    epoch as it was, Empty, PrepareAbort or CompleteAbort                     somebody has aborted it
    otherwise a higher epoch, or another producer id (epochs were used up)    the id was taken anew, so it was committed
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
"""What follows the prefix: a job's id, a sink's uid, three numbers."""


class Owner(NamedTuple):
    """Whose transactions these are: a sink of a job."""

    prefix: str
    job_id: str
    uid: str

    @property
    def names(self) -> str:
        """What the names of all its transactions begin with."""
        return f"{self.prefix}-{self.job_id}-{self.uid}-"

    def name(self, attempt: int, subtask: int, index: int) -> str:
        """
        >>> Owner("pay", "j1", "out").name(3, 0, 1)
        'pay-j1-out-3-0-1'
        """
        return f"{self.names}{attempt}-{subtask}-{index}"

    def attempt_of(self, transactional_id: str) -> int | None:
        """The attempt that uses this id; None: it is not this owner's.

        >>> Owner("pay", "j1", "out").attempt_of("pay-j1-out-3-0-1"), Owner("pay", "j1", "out").attempt_of("pay-j1-out2-3-0-1")
        (3, None)
        """
        if not transactional_id.startswith(self.names):
            return None
        numbers = _NUMBERS.fullmatch(transactional_id[len(self.names) :])
        return None if numbers is None else int(numbers[1])

    def is_of_another_job(self, transactional_id: str) -> bool:
        """Whether another job uses the prefix. One with a longer prefix, `pay-eu` beside `pay`, does not.

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
    """What a checkpoint keeps of a transaction that was pre-committed."""

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
    """What a broker says of a transactional id."""

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
    """What became of a transaction, by what the broker says of its id now.

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
