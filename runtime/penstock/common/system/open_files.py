"""The number of files and connections that this process may open."""

from __future__ import annotations

import resource

WANTED = 65_536
"""Soft limit that a JobManager or a worker requests. Unauthenticated connections then use a small share of it."""
_SHARE = 4
"""A listener uses at most 1/4 of all descriptors for peers that have not authenticated. It may always use 8."""


def raise_limit(wanted: int = WANTED) -> int:
    """Raise the soft limit of open files to `wanted`, but not above the hard limit. Return the resulting limit.

    Most systems set the soft limit to 1,024 for programs that use `select`. Penstock does not use `select`.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < target:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
        except (ValueError, OSError):  # a sandbox forbids it: the soft limit does not change
            return soft
        return target
    return wanted if soft == resource.RLIM_INFINITY else soft


def max_unauthenticated(limit: int) -> int:
    """Return how many unauthenticated connections one listener may hold, at most `limit`."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit if soft == resource.RLIM_INFINITY else max(8, min(limit, soft // _SHARE))
