"""The autoscaler. Keys that Flink's Kubernetes operator has are spelled as there."""

from __future__ import annotations

from datetime import timedelta

from penstock.common.config.option import choice_option, duration_option, flag_option, fraction_option, int_option

AUTOSCALER_ENABLED = flag_option(
    "job.autoscaler.enabled", False, "Change the parallelism of the job automatically with its load."
)
AUTOSCALER_SCALING_ENABLED = flag_option(
    "job.autoscaler.scaling.enabled", True, "false has the same effect as penstock.autoscaler.mode: recommend."
)
AUTOSCALER_MODE = choice_option(
    "penstock.autoscaler.mode",
    ("active", "recommend"),
    "active",
    "active: the autoscaler rescales the job. recommend: it only publishes the parallelism that it would choose.",
)
AUTOSCALER_TARGET = fraction_option(
    "job.autoscaler.utilization.target",
    0.7,
    "Busy share of the busiest vertex for which the autoscaler chooses the parallelism.",
    "job.autoscaler.target.utilization",
)
AUTOSCALER_UPPER = fraction_option(
    "job.autoscaler.utilization.max", 0.9, "Busy share above which the autoscaler scales up."
)
AUTOSCALER_LOWER = fraction_option(
    "job.autoscaler.utilization.min", 0.4, "Busy share below which the autoscaler scales down."
)
AUTOSCALER_MIN_PARALLELISM = int_option(
    "job.autoscaler.vertex.min-parallelism", 1, "Minimum parallelism that the autoscaler chooses.", minimum=1
)
AUTOSCALER_MAX_PARALLELISM = int_option(
    "job.autoscaler.vertex.max-parallelism",
    200,
    "Maximum parallelism that the autoscaler chooses. The max parallelism of the job is also a limit.",
    minimum=1,
)
AUTOSCALER_WINDOW = duration_option(
    "job.autoscaler.metrics.window",
    timedelta(minutes=1),
    "Period of the measurements of one decision. At least 15s.",
)
AUTOSCALER_STABILIZATION = duration_option(
    "job.autoscaler.stabilization.interval",
    timedelta(seconds=10),
    "Time after each start, restart and rescale whose measurements are not used.",
)
AUTOSCALER_SCALE_DOWN_INTERVAL = duration_option(
    "job.autoscaler.scale-down.interval",
    timedelta(minutes=10),
    "Time for which the load must be low before the autoscaler scales down.",
)
AUTOSCALER_CATCH_UP = duration_option(
    "job.autoscaler.catch-up.duration",
    timedelta(minutes=3),
    "Time in which the job processes its lag after it was scaled up. 0 means that the lag needs no extra capacity.",
)
AUTOSCALER_RESTART_TIME = duration_option(
    "job.autoscaler.restart.time",
    timedelta(seconds=3),
    "Expected pause of a rescale. Measured pauses replace it.",
)
AUTOSCALER_EFFECTIVENESS = fraction_option(
    "job.autoscaler.scaling.effectiveness.threshold",
    0.1,
    "Share of the expected gain that a scale-up must reach. Below it, the autoscaler does not scale up further for this vertex.",
)
AUTOSCALER_MAX_LAG = duration_option(
    "penstock.autoscaler.max-lag",
    timedelta(seconds=30),
    "Target of the lag: the age of the oldest unread record. The autoscaler does not scale down above it.",
)
AUTOSCALER_KEY_TEXTS = flag_option(
    "penstock.autoscaler.key-texts",
    True,
    "Show the text of hot keys, at most 60 characters. false shows only their key groups, for keys that are personal data.",
)
AUTOSCALER_BUDGET = fraction_option(
    "penstock.autoscaler.pause-budget",
    0.001,
    "Share of an hour for which rescales may pause the job. A scale-up that the lag requires is not limited.",
)
