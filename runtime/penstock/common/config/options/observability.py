"""Archives of ended jobs, metrics, traces and reporters."""

from __future__ import annotations

from datetime import timedelta

from penstock.common.config.option import choice_option, duration_option, text_option

ARCHIVE_DIRECTORY = text_option(
    "jobmanager.archive.fs.dir",
    None,
    "Folder for archives of ended jobs, which `penstock history` shows. An archive has the content of the REST API. "
    "Not set: no archives.",
)
METRICS_DELIMITER = text_option("metrics.scope.delimiter", ".", "Separator between the parts of a metric identifier.")
TMP_DIRECTORIES = text_option(
    "io.tmp.dirs", None, "Local folder for temporary files. Not set: the temporary folder of the system."
)
LATENCY_INTERVAL = duration_option(
    "metrics.latency.interval",
    timedelta(0),
    "Interval between two latency markers of a source. Operators use the markers to measure how long records take "
    "from the source. 0 means no markers.",
)
METRICS_REPORTERS = text_option(
    "metrics.reporters",
    None,
    "Names of the reporters that send metrics, separated by commas. metrics.reporter.<name>.* are the settings of a "
    "reporter. Prometheus needs no reporter.",
)
TRACES_REPORTERS = text_option(
    "traces.reporters",
    None,
    "Names of the reporters that send traces of checkpoints, starts and rescales, separated by commas. "
    "traces.reporter.<name>.* are the settings of a reporter.",
)
LOGS_REPORTERS = text_option(
    "logs.reporters",
    None,
    "Names of the reporters that send the logs of the JobManager and TaskManagers, separated by commas. "
    "logs.reporter.<name>.* are the settings of a reporter.",
)
LATENCY_GRANULARITY = choice_option(
    "metrics.latency.granularity",
    ("single", "operator", "subtask"),
    "operator",
    "Granularity of latency metrics. single: one latency for all sources. operator: one for each source. subtask: "
    "one for each subtask of a source.",
)
