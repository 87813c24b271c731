"""The settings of a program: its parallelism, its files, its operators and its buffers."""

from __future__ import annotations

from datetime import timedelta

from penstock.common.config.option import (
    choice_option,
    duration_option,
    flag_option,
    int_option,
    list_option,
    map_option,
    text_option,
)

PARALLELISM = int_option(
    "parallelism.default",
    1,
    "Parallelism of operators that set none. The option -p of the command line sets it.",
    minimum=1,
)
JOB_NAME = text_option("pipeline.name", None, "Name of the job if the program passes no name to execute().")
MAX_PARALLELISM = int_option(
    "pipeline.max-parallelism",
    None,
    "Number of key groups, and the highest parallelism that the job can be rescaled to. It cannot change while the "
    "job has state. Not set: 128.",
    minimum=1,
)
AUTO_WATERMARK_INTERVAL = duration_option(
    "pipeline.auto-watermark-interval",
    timedelta(milliseconds=200),
    "Interval between periodic watermarks. 0 means none, except the final watermark of bounded input.",
)
OPERATOR_CHAINING = flag_option(
    "pipeline.operator-chaining.enabled",
    True,
    "Run operators without an exchange between them in one task.",
    "pipeline.operator-chaining",
)
OBJECT_REUSE = flag_option(
    "pipeline.object-reuse",
    False,
    "No effect; accepted for compatibility with Flink. Operators always pass references.",
)
AUTO_GENERATE_UIDS = flag_option(
    "pipeline.auto-generate-uids",
    True,
    "false: an operator without a uid is an error. Recommended for production.",
)
GLOBAL_JOB_PARAMETERS = map_option(
    "pipeline.global-job-parameters", "Parameters that functions read with RuntimeContext.get_job_parameter."
)
JARS = list_option(
    "pipeline.jars", "No effect; accepted for compatibility with Flink. Connectors are part of the image."
)
CLASSPATHS = list_option(
    "pipeline.classpaths", "No effect; accepted for compatibility with Flink. Connectors are part of the image."
)
PYTHON_FILES = list_option(
    "python.files", "Files and folders that are added to the Python path of the program and of its workers."
)
PYTHON_ARCHIVES = list_option(
    "python.archives",
    "Archives that are unpacked into the working directory of functions. The folder has the name of the archive, or "
    "the name after #: model.zip#model.",
)
RUNTIME_MODE = choice_option(
    "execution.runtime-mode",
    ("STREAMING", "BATCH", "AUTOMATIC"),
    "STREAMING",
    "BATCH: rolling aggregates emit one final result for each key. AUTOMATIC: BATCH if every source is bounded.",
)
BUFFER_TIMEOUT = duration_option(
    "execution.buffer-timeout.interval",
    timedelta(milliseconds=25),
    "Pipelined runner: approximate maximum time that an exchange buffers a record. 0 means no buffering. A longer "
    "interval needs less CPU time. For the batched runner see penstock.epoch.target.",
    "execution.buffer-timeout",
)
BUFFER_TIMEOUT_ENABLED = flag_option(
    "execution.buffer-timeout.enabled",
    True,
    "false: the pipelined runner sends records only when a buffer is full or an epoch ends.",
)
