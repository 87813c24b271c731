"""Names of part files.

    <prefix>-<subtask>-<counter>-<owner><attempt><random><suffix>    a finished part
    .<prefix>-…<suffix>.inprogress.<random>                           the same part before its commit (not on S3)

`owner` identifies the job and the sink, so that cleanup does not touch parts of another job in the same directory. `attempt`
is the leader epoch of the attempt that opened the part. So a superseded JobManager that still cleans up does not touch parts
of its successor. `random` is new for every subtask. Readers skip names that begin with a dot.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from penstock.common.errors import InvalidJob


@dataclass(frozen=True)
class OutputFileConfig:
    """The prefix and suffix of part files.
    >>> OutputFileConfig.builder().with_part_prefix("day").with_part_suffix(".csv").build()
    OutputFileConfig(part_prefix='day', part_suffix='.csv')
    """

    part_prefix: str = "part"
    part_suffix: str = ""
    OutputFileConfigBuilder: ClassVar[type[PartNamesBuilder]]

    def __post_init__(self) -> None:
        if "/" in self.part_prefix + self.part_suffix or self.part_prefix.startswith(".") or not self.part_prefix:
            raise InvalidJob(
                f"{self.part_prefix!r} and {self.part_suffix!r} are not a prefix and a suffix of file names",
                remedy="use a prefix that is not empty and does not begin with a dot, and no '/' in either of them",
            )

    def get_part_prefix(self) -> str:
        return self.part_prefix

    def get_part_suffix(self) -> str:
        return self.part_suffix

    @staticmethod
    def builder() -> PartNamesBuilder:
        return PartNamesBuilder()


class PartNamesBuilder:
    """PyFlink's builder of an `OutputFileConfig`."""

    def __init__(self) -> None:
        self._prefix = "part"
        self._suffix = ""

    def with_part_prefix(self, prefix: str) -> PartNamesBuilder:
        self._prefix = prefix
        return self

    def with_part_suffix(self, suffix: str) -> PartNamesBuilder:
        self._suffix = suffix
        return self

    def build(self) -> OutputFileConfig:
        return OutputFileConfig(self._prefix, self._suffix)


OutputFileConfig.OutputFileConfigBuilder = PartNamesBuilder


def owner_of(job_id: str, uid: str) -> str:
    """Return 8 hex digits that identify a sink of a job."""
    return hashlib.blake2b(f"{job_id}/{uid}".encode(), digest_size=4).hexdigest()


_ATTEMPTS = 1 << 24


class PartNames:
    """The names of one subtask's parts. After a restore, `counter` continues from the value in the checkpoint."""

    def __init__(
        self, config: OutputFileConfig, owner: str, subtask: int, counter: int = 0, *, attempt: int = 0
    ) -> None:
        self._config = config
        self._unique = f"{owner}{attempt % _ATTEMPTS:06x}{secrets.token_hex(3)}"
        self._subtask = subtask
        self.counter = counter

    @property
    def suffix(self) -> str:
        """Return the end of the names."""
        return self._config.part_suffix

    def next(self) -> str:
        name = f"{self._config.part_prefix}-{self._subtask}-{self.counter}-{self._unique}{self._config.part_suffix}"
        self.counter += 1
        return name


def in_progress_name(name: str) -> str:
    """Return a new name for a part that is being written. Every call returns a different name."""
    return f".{name}.inprogress.{secrets.token_hex(4)}"


def in_progress_of(owner: str, below: int | None = None) -> Callable[[str], bool]:
    """Return a function that recognizes the in-progress files of an owner, including files of a resumed part.

    Args:
        below: only parts that attempts before this one opened; None means parts of any attempt.
    """
    return _older(rf"\..+-\d+-\d+-{owner}([0-9a-f]{{6}})[0-9a-f]{{6}}.*\.inprogress\.[0-9a-f]{{8}}(\.resumed)?", below)


def finished_of(owner: str, below: int | None = None) -> Callable[[str], bool]:
    """Return a function that recognizes the names of an owner's parts; `below` as for `in_progress_of`."""
    return _older(rf".+-\d+-\d+-{owner}([0-9a-f]{{6}})[0-9a-f]{{6}}.*", below)


def _older(pattern: str, below: int | None) -> Callable[[str], bool]:
    compiled = re.compile(pattern)

    def matches(name: str) -> bool:
        found = compiled.fullmatch(name)
        return found is not None and (below is None or int(found.group(1), 16) < below)

    return matches
