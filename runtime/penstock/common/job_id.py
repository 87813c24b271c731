"""`JobID`: the id under which a cluster knows one run of a job."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass

from penstock.common.errors import InvalidJob

_HEX = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, order=True)
class JobID:
    """An id of 32 hexadecimal digits, as Flink writes it.

    >>> str(JobID("0123456789abcdef0123456789abcdef"))
    '0123456789abcdef0123456789abcdef'
    """

    digits: str

    def __post_init__(self) -> None:
        if not _HEX.fullmatch(self.digits):
            raise InvalidJob(f"{self.digits!r} is not a job id", remedy="a job id has 32 hexadecimal digits")

    @staticmethod
    def generate() -> JobID:
        return JobID(uuid.uuid4().hex)

    def __str__(self) -> str:
        return self.digits
