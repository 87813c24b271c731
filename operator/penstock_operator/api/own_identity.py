"""What may be reached with the operator's own identity, for jobs that have no keys of their own. Pure.

Whoever may create a FlinkJob chooses paths and endpoint. With keys of the job (`storage.secretName`) they open what these keys
open. Without, the storage driver would take whatever the operator itself has (workload identity, environment, its own file
system) and be its deputy: read, list and delete for somebody who could not. So the platform says what is meant for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock_operator.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_SAME = {"s3a": "s3"}


@dataclass(frozen=True)
class NotMeant:
    """Something that the platform has not opened."""

    what: str
    value: str
    """Which of the chart's values would open it."""

    def __str__(self) -> str:
        return f"{self.what} is not open to jobs without keys of their own"

    @property
    def remedy(self) -> str:
        """What to do."""
        return (
            "Name a Secret with keys in storage.secretName, or have the platform add it to "
            f"storage.ownIdentity.{self.value} of the operator's chart"
        )


@dataclass(frozen=True)
class OwnIdentity:
    """The chart's `storage.ownIdentity`."""

    locations: tuple[str, ...] = ()
    """Prefixes, whole path segments: `s3://bucket`, `s3://bucket/team`."""
    endpoints: tuple[str, ...] = ()
    """Values of s3.endpoint besides none."""

    def check(self, location: str, endpoint: str | None) -> None:
        """StorageError with the remedy, unless this is meant for jobs without keys.

        >>> OwnIdentity(locations=("s3://bucket/team",)).check("s3a://bucket/team/job/chk-1", None)
        """
        for problem in self.problems(endpoint, location):
            msg = f"{problem}. {problem.remedy}"
            raise StorageError(msg)

    def problems(self, endpoint: str | None, *locations: str) -> Iterator[NotMeant]:
        """What of this is not meant for jobs without keys."""
        if endpoint and endpoint.rstrip("/") not in {e.rstrip("/") for e in self.endpoints}:
            yield NotMeant(f"s3.endpoint {endpoint}", "endpoints")
        for location in locations:
            if not any(_is_below(_plain(location), _plain(prefix)) for prefix in self.locations):
                yield NotMeant(location, "locations")


def _plain(location: str) -> str:
    scheme, _, path = location.partition("://")
    return f"{_SAME.get(scheme, scheme)}://{path.rstrip('/')}"


def _is_below(location: str, prefix: str) -> bool:
    inside = location == prefix or location.startswith(f"{prefix}/")
    return inside and ".." not in location.split("/")
