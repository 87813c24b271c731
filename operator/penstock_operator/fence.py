"""The fence of all changes: only one of several replicas of the operator may change anything.

The operator changes three systems: the Kubernetes API (`kube.http`), the jobs' masters (`engine.client`) and storage
(`storage`). Each of these modules calls the fence before a change. Reads are not fenced.
"""

from __future__ import annotations

from collections.abc import Callable

Fence = Callable[[], float | None]
"""Function that raises `NotLeader` if this process must not change anything. Otherwise it returns the seconds that a
change may take, or None for no limit.
"""


def no_fence() -> None:
    """Permit every change. It is used if no other replica can run."""
