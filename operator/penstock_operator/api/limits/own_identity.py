"""The storage that jobs without their own keys may access with the operator's identity. Pure functions.

The author of a FlinkJob chooses its paths and its endpoint. If the job has keys (`storage.secretName`), the operator
accesses the storage with these keys. Without keys, the storage driver uses the operator's own identity: workload
identity, environment or local file system. The operator would then read, list and delete files for a user who has no
access to them. So the platform lists the storage that is open to such jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock_operator.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCHEME_ALIASES = {"s3a": "s3"}


@dataclass(frozen=True)
class IdentityNotAllowed:
    """A location or an endpoint that the platform has not opened to jobs without keys."""

    subject: str
    setting: str
    """The setting of the chart that opens the location or endpoint to such jobs."""

    def __str__(self) -> str:
        return f"{self.subject} is not allowed for jobs without their own keys"

    @property
    def remedy(self) -> str:
        """Instruction for the user to fix the problem."""
        return (
            "Name a Secret with keys in storage.secretName, or have the platform add it to "
            f"storage.ownIdentity.{self.setting} of the operator's chart"
        )


@dataclass(frozen=True)
class OwnIdentity:
    """The chart's setting `storage.ownIdentity`."""

    locations: tuple[str, ...] = ()
    """Allowed prefixes of locations, such as `s3://bucket` or `s3://bucket/team`. A prefix ends at a path segment."""
    endpoints: tuple[str, ...] = ()
    """Allowed values of s3.endpoint. A job that sets no endpoint is always allowed."""

    def check(self, location: str, endpoint: str | None) -> None:
        """Raise `StorageError` with the remedy if jobs without keys may not access the location or the endpoint.

        >>> OwnIdentity(locations=("s3://bucket/team",)).check("s3a://bucket/team/job/chk-1", None)
        """
        for problem in self.problems(endpoint, location):
            msg = f"{problem}. {problem.remedy}"
            raise StorageError(msg)

    def problems(self, endpoint: str | None, *locations: str) -> Iterator[IdentityNotAllowed]:
        """Yield each location and endpoint that jobs without keys may not use."""
        if endpoint and endpoint.rstrip("/") not in {e.rstrip("/") for e in self.endpoints}:
            yield IdentityNotAllowed(f"s3.endpoint {endpoint}", "endpoints")
        for location in locations:
            if not any(_is_below(_plain(location), _plain(prefix)) for prefix in self.locations):
                yield IdentityNotAllowed(location, "locations")


def _plain(location: str) -> str:
    scheme, _, path = location.partition("://")
    return f"{_SCHEME_ALIASES.get(scheme, scheme)}://{path.rstrip('/')}"


def _is_below(location: str, prefix: str) -> bool:
    inside = location == prefix or location.startswith(f"{prefix}/")
    return inside and ".." not in location.split("/")
