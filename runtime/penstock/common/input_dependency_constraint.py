"""`InputDependencyConstraint`: the condition under which Flink schedules a task. Here all tasks run from the start of the job."""

from enum import Enum


class InputDependencyConstraint(Enum):
    """Setting of PyFlink that has no effect here."""

    ANY = 0
    ALL = 1
