"""Restart strategies."""

from __future__ import annotations

from datetime import timedelta

from penstock.common.config.option import choice_option, duration_option, float_option, int_option

RESTART_STRATEGY = choice_option(
    "restart-strategy.type",
    (
        "none",
        "off",
        "disable",
        "fixed-delay",
        "fixeddelay",
        "failure-rate",
        "failurerate",
        "exponential-delay",
        "exponentialdelay",
        "default",
    ),
    "default",
    "Restart strategy after a failure. default: exponential-delay if checkpoints are enabled, otherwise none.",
    "restart-strategy",
)
FIXED_DELAY_ATTEMPTS = int_option(
    "restart-strategy.fixed-delay.attempts", 1, "Number of restarts before the job fails."
)
FIXED_DELAY = duration_option("restart-strategy.fixed-delay.delay", timedelta(seconds=1), "Pause before each restart.")
FAILURE_RATE_MAX = int_option(
    "restart-strategy.failure-rate.max-failures-per-interval",
    1,
    "Maximum number of failures within the interval. The job fails at one more failure.",
    minimum=1,
)
FAILURE_RATE_INTERVAL = duration_option(
    "restart-strategy.failure-rate.failure-rate-interval",
    timedelta(minutes=1),
    "Interval in which failures are counted.",
)
FAILURE_RATE_DELAY = duration_option(
    "restart-strategy.failure-rate.delay", timedelta(seconds=1), "Pause before each restart."
)
EXPONENTIAL_INITIAL = duration_option(
    "restart-strategy.exponential-delay.initial-backoff", timedelta(seconds=1), "Pause before the first restart."
)
EXPONENTIAL_MAX = duration_option(
    "restart-strategy.exponential-delay.max-backoff", timedelta(minutes=1), "Maximum pause before a restart."
)
EXPONENTIAL_MULTIPLIER = float_option(
    "restart-strategy.exponential-delay.backoff-multiplier", 1.5, "Factor by which the pause grows with each restart."
)
EXPONENTIAL_RESET = duration_option(
    "restart-strategy.exponential-delay.reset-backoff-threshold",
    timedelta(hours=1),
    "Time without a failure after which the pause is reset to the initial one.",
)
EXPONENTIAL_JITTER = float_option(
    "restart-strategy.exponential-delay.jitter-factor", 0.1, "Random share of the pause, from 0 to 1."
)
EXPONENTIAL_ATTEMPTS = int_option(
    "restart-strategy.exponential-delay.attempts-before-reset-backoff",
    None,
    "Maximum number of restarts before the job fails. A reset of the pause (reset-backoff-threshold) resets this "
    "number, too. Not set: no limit.",
    minimum=1,
)
