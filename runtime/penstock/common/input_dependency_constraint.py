"""`InputDependencyConstraint`: when Flink schedules a task. Here all tasks of a job run from its start."""

from enum import Enum


class InputDependencyConstraint(Enum):
    """Has no effect."""

    ANY = 0
    ALL = 1
