"""What every change goes through: of several replicas of the operator only one may make any.

There are three ways to the outside, and each asks before it changes something: the Kubernetes API (`kube.http`), the
jobs' masters (`engine.client`) and storage (`storage`). Looking is free.
"""

from __future__ import annotations

from collections.abc import Callable

Fence = Callable[[], float | None]
"""Raises `NotLeader` if this process must not change anything; else how many seconds a change may take, None: any."""


def no_fence() -> None:
    """Where there is nobody else."""
