"""Names of part files.

    <prefix>-<subtask>-<counter>-<owner><random><suffix>             a finished part
    .<prefix>-…<suffix>.inprogress.<random>                           the same part before its commit (not on S3)

`owner` tells job and sink, so that whoever cleans up touches nothing of another job that writes to the same directory;
`random` is new for every attempt of every subtask, so that restarts and rescales never meet in a name. Names that begin
with a dot are skipped by readers.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass

from penstock.common.errors import InvalidJob


@dataclass(frozen=True)
class OutputFileConfig:
    """Prefix and suffix of part files.

    >>> OutputFileConfig.builder().with_part_prefix("day").with_part_suffix(".csv").build()
    OutputFileConfig(part_prefix='day', part_suffix='.csv')
    """

    part_prefix: str = "part"
    part_suffix: str = ""

    def __post_init__(self) -> None:
        if "/" in self.part_prefix + self.part_suffix or self.part_prefix.startswith(".") or not self.part_prefix:
            raise InvalidJob(
                f"{self.part_prefix!r} and {self.part_suffix!r} are no prefix and suffix of file names",
                remedy="a prefix does not begin with a dot; neither holds a '/'",
            )

    def get_part_prefix(self) -> str:
        return self.part_prefix

    def get_part_suffix(self) -> str:
        return self.part_suffix

    @staticmethod
    def builder() -> OutputFileConfigBuilder:
        return OutputFileConfigBuilder()


class OutputFileConfigBuilder:
    """PyFlink's builder."""

    def __init__(self) -> None:
        self._prefix = "part"
        self._suffix = ""

    def with_part_prefix(self, prefix: str) -> OutputFileConfigBuilder:
        self._prefix = prefix
        return self

    def with_part_suffix(self, suffix: str) -> OutputFileConfigBuilder:
        self._suffix = suffix
        return self

    def build(self) -> OutputFileConfig:
        return OutputFileConfig(self._prefix, self._suffix)


def owner_of(job_id: str, uid: str) -> str:
    """8 hex digits for a sink of a job."""
    return hashlib.blake2b(f"{job_id}/{uid}".encode(), digest_size=4).hexdigest()


class PartNames:
    """Gives the parts of one subtask their names. `counter` goes on from the checkpoint."""

    def __init__(self, config: OutputFileConfig, owner: str, subtask: int, counter: int = 0) -> None:
        self._config = config
        self._unique = owner + secrets.token_hex(4)
        self._subtask = subtask
        self.counter = counter

    def next(self) -> str:
        name = f"{self._config.part_prefix}-{self._subtask}-{self.counter}-{self._unique}{self._config.part_suffix}"
        self.counter += 1
        return name


def in_progress_name(name: str) -> str:
    """A name for a part that is being written; another one at every call."""
    return f".{name}.inprogress.{secrets.token_hex(4)}"


def in_progress_of(owner: str) -> re.Pattern[str]:
    """Matches the names `in_progress_name` gives to parts of an owner, and what resuming them leaves behind."""
    return re.compile(rf"\..+-\d+-\d+-{owner}[0-9a-f]{{8}}.*\.inprogress\.[0-9a-f]{{8}}(\.resumed)?")


def finished_of(owner: str) -> re.Pattern[str]:
    """Matches the names of parts of an owner."""
    return re.compile(rf".+-\d+-\d+-{owner}[0-9a-f]{{8}}.*")
