"""Limits on the time of single steps of a job."""

from __future__ import annotations

from datetime import timedelta

from penstock.common.config.option import duration_option

TASK_CANCELLATION_INTERVAL = duration_option(
    "task.cancellation.interval",
    timedelta(seconds=30),
    "Time between two forced attempts to end a cancelled job. The second attempt abandons a running commit.",
)
TASK_CANCELLATION_TIMEOUT = duration_option(
    "task.cancellation.timeout",
    timedelta(seconds=10),
    "Time after which a cancelled job that still runs is ended by force: its Spark job is cancelled, and its Python "
    "workers are killed.",
)
SLOT_REQUEST_TIMEOUT = duration_option(
    "slot.request.timeout", timedelta(minutes=5), "How long an attempt waits for its slots before it fails."
)
LOAD_TIMEOUT = duration_option(
    "penstock.start.load-timeout",
    timedelta(minutes=5),
    "How long a worker may take to load the job: its imports and its pickled functions.",
)
RESTORE_TIMEOUT = duration_option(
    "penstock.start.restore-timeout",
    timedelta(hours=1),
    "How long a subtask may take to restore the state of one operator.",
)
OPEN_TIMEOUT = duration_option(
    "penstock.start.open-timeout",
    timedelta(minutes=10),
    "How long `open` of one operator's functions may take in a subtask.",
)
FIRST_EPOCH_TIMEOUT = duration_option(
    "penstock.start.first-epoch-timeout",
    timedelta(minutes=10),
    "How long the first epoch of an attempt may take. Time in which a task loads, restores or opens does not count.",
)
ENUMERATOR_TIMEOUT = duration_option(
    "penstock.source.enumerator-timeout",
    timedelta(minutes=10),
    "How long one call of a source's enumerator may take, for example a listing of files or partitions. 0 means "
    "no limit.",
)
COMMIT_TIMEOUT = duration_option(
    "penstock.sink.commit-timeout",
    timedelta(minutes=10),
    "How long one call of a sink's committer may take, for example the commit of one checkpoint. 0 means no limit.",
)
