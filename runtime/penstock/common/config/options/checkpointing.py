"""Checkpoints and savepoints: their schedule, their storage and their files."""

from __future__ import annotations

from datetime import timedelta

from penstock.common.config.option import (
    choice_option,
    duration_option,
    flag_option,
    int_option,
    size_option,
    text_option,
)

CHECKPOINT_INTERVAL = duration_option(
    "execution.checkpointing.interval",
    None,
    "Time between the starts of two checkpoints. Not set or 0 means no checkpoints.",
)
CHECKPOINT_MODE = choice_option(
    "execution.checkpointing.mode",
    ("EXACTLY_ONCE", "AT_LEAST_ONCE"),
    "EXACTLY_ONCE",
    "AT_LEAST_ONCE: the pipelined runner processes records that follow a barrier before the barrier has arrived from "
    "all inputs. After a failure, state and sinks may have records twice. Savepoints that end a job, rescales and "
    "batch mode are always exactly-once.",
)
CHECKPOINT_TIMEOUT = duration_option(
    "execution.checkpointing.timeout", timedelta(minutes=10), "Time after which an incomplete checkpoint fails."
)
CHECKPOINT_MIN_PAUSE = duration_option(
    "execution.checkpointing.min-pause",
    timedelta(0),
    "Minimum time from the end of a checkpoint to the start of the next.",
)
MAX_CONCURRENT_CHECKPOINTS = int_option(
    "execution.checkpointing.max-concurrent-checkpoints",
    1,
    "No effect; accepted for compatibility with Flink. One checkpoint is in progress at a time. A checkpoint that "
    "becomes due starts after it.",
    minimum=1,
)
TOLERABLE_FAILED_CHECKPOINTS = int_option(
    "execution.checkpointing.tolerable-failed-checkpoints",
    0,
    "Number of consecutive checkpoints that may fail before the job restarts.",
)
MAX_UNCOMMITTED_CHECKPOINTS = int_option(
    "execution.checkpointing.max-uncommitted-checkpoints",
    3,
    "Maximum number of complete checkpoints whose sink commits are not finished. At this number, the next "
    "periodic checkpoint waits.",
    minimum=1,
)
CHECKPOINT_RETENTION = choice_option(
    "execution.checkpointing.externalized-checkpoint-retention",
    ("DELETE_ON_CANCELLATION", "RETAIN_ON_CANCELLATION", "NO_EXTERNALIZED_CHECKPOINTS"),
    "NO_EXTERNALIZED_CHECKPOINTS",
    "Whether checkpoints are kept after the job is cancelled.",
)
UNALIGNED_CHECKPOINTS = flag_option(
    "execution.checkpointing.unaligned.enabled",
    False,
    "No effect; accepted for compatibility with Flink. No records are in flight at the end of an epoch.",
    "execution.checkpointing.unaligned",
)
FORCE_UNALIGNED_CHECKPOINTS = flag_option(
    "execution.checkpointing.unaligned.forced",
    False,
    "No effect; accepted for compatibility with Flink. See execution.checkpointing.unaligned.enabled.",
)
ALIGNED_CHECKPOINT_TIMEOUT = duration_option(
    "execution.checkpointing.aligned-checkpoint-timeout",
    timedelta(0),
    "No effect; accepted for compatibility with Flink. See execution.checkpointing.unaligned.enabled.",
)
CHECKPOINT_DIRECTORY = text_option(
    "execution.checkpointing.dir",
    None,
    "URL of the folder for checkpoints: s3://…, file://….",
    "state.checkpoints.dir",
)
SAVEPOINT_DIRECTORY = text_option(
    "execution.checkpointing.savepoint-dir", None, "URL of the folder for savepoints.", "state.savepoints.dir"
)
RETAINED_CHECKPOINTS = int_option(
    "execution.checkpointing.num-retained",
    1,
    "Number of completed checkpoints that are kept.",
    "state.checkpoints.num-retained",
    minimum=1,
)
INCREMENTAL_CHECKPOINTS = flag_option(
    "execution.checkpointing.incremental",
    True,
    "No effect; accepted for compatibility with Flink. Both backends upload only the changes since the last checkpoint.",
    "state.backend.incremental",
)
FILE_MERGING = flag_option(
    "execution.checkpointing.file-merging.enabled",
    True,
    "Store the small state files (up to 1 MiB) of one task and checkpoint in one object.",
)
FILE_MERGING_MAX_SIZE = size_option(
    "execution.checkpointing.file-merging.max-file-size",
    32 << 20,
    "Maximum size of an object that contains small state files.",
    minimum=1 << 10,
)
