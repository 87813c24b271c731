"""The sentences that explain decisions."""

from __future__ import annotations

from penstock.jobmanager.autoscaling.decision import Cost
from penstock.jobmanager.autoscaling.model import Limit, LoadModel, VertexLoad
from penstock.jobmanager.autoscaling.samples import Sample
from penstock.jobmanager.autoscaling.settings import AutoscalerSettings
from penstock.jobmanager.autoscaling.window import VertexEstimate


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"


def _seconds(ms: float) -> str:
    return f"{ms / 1e3:.0f} s"


def fewer_slots(sample: Sample) -> str:
    return (
        f"The job runs with parallelism {sample.parallelism} instead of {sample.requested}, because slots are missing. "
        "It rescales when they return."
    )


def no_input(sample: Sample) -> str:
    lag = sum(vertex.lag or 0.0 for vertex in sample.vertices)
    if lag > 0:
        return (
            f"The sources read nothing, although {lag:.0f} records are unread. More parallelism would not change this."
        )
    return "The sources have read no records, so the load is not known. The parallelism stays as it is."


def outside(current: int, lowest: int, highest: int) -> str:
    return f"The parallelism {current} is outside of the limits {lowest} to {highest}."


def hot(estimate: VertexEstimate) -> str:
    subtask, busy = estimate.hottest or (0, 0.0)
    return (
        f"Subtask {subtask} of {estimate.vertex.name!r} is busy for {_share(busy)} of its time, and the mean of its subtasks is "
        f"{_share(estimate.busy)}. A few keys or splits have most of the records, so more parallelism would not help."
    )


def hot_key(estimate: VertexEstimate) -> str:
    key = estimate.hot_key
    assert key is not None
    name = f"Key group {key.group}" if key.key is None else f"The key {key.key}"
    return (
        f"{name} has {_share(key.share)} of the records of {estimate.vertex.name!r}. Subtask {key.subtask} processes all of them, and "
        f"is busy for {_share(key.busy)} of its time. So more parallelism would not help. Split the key, for example by a "
        "second field or a random suffix, and combine the partial results."
    )


def up(
    current: int, wanted: int, limiting: VertexLoad, load: float, lag_ms: float, settings: AutoscalerSettings
) -> str:
    message = f"{limiting.estimate.vertex.name!r} has a load of {_share(load)} at parallelism {current}. "
    if lag_ms > settings.max_lag_ms:
        message += f"The lag is {_seconds(lag_ms)}, above the target of {_seconds(settings.max_lag_ms)}. "
    return message + f"The job needs parallelism {wanted}."


def changing(wanted: int) -> str:
    return f"The load is still changing. At the moment the job would need parallelism {wanted}."


def budget(message: str, cost: Cost) -> str:
    return (
        f"{message} Rescales have paused the job for {_seconds(cost.paused_ms)} in the last hour, and one more of "
        f"{cost.pause_ms / 1e3:.1f} s would exceed the budget."
    )


def at_max(highest: int, sample: Sample, settings: AutoscalerSettings) -> str:
    limit = "max parallelism (key groups)" if sample.max_parallelism <= settings.max_parallelism else "maximum"
    return f"The job needs more than its {limit} of {highest}."


def no_gain(limiting: VertexLoad, current: int, wanted: int) -> str:
    name = limiting.estimate.vertex.name
    if limiting.limit is Limit.FIXED:
        return (
            f"{name!r} limits the job, and the program sets its parallelism to {limiting.estimate.vertex.parallelism}."
        )
    if limiting.limit is Limit.SPLITS:
        return f"The source {name!r} limits the job. It has {limiting.estimate.vertex.splits} splits, so more subtasks would read nothing."
    if limiting.limit is Limit.INEFFECTIVE:
        return (
            f"{name!r} limits the job, and its capacity did not grow with the last scale-up. "
            "Something outside of the job limits it, such as a slow external system."
        )
    return (
        f"{name!r} limits the job, but parallelism {max(wanted, current)} would increase its capacity by less than 5 %."
    )


def lag_above(lag_ms: float, settings: AutoscalerSettings) -> str:
    return (
        f"The job could run with less parallelism, but its lag of {_seconds(lag_ms)} is above the target of "
        f"{_seconds(settings.max_lag_ms)}."
    )


def catching_up(lag_ms: float, settings: AutoscalerSettings) -> str:
    return f"The lag is {_seconds(lag_ms)}. The job reads it in less than {_seconds(settings.catch_up_ms)}, so it needs no rescale."


def all_fixed() -> str:
    return "The program sets the parallelism of all operators."


def within(model: LoadModel, current: int, load: float, settings: AutoscalerSettings) -> str:
    if not model.loads:
        return "The job has no load."
    name = model.bottleneck(current).estimate.vertex.name
    return f"{name!r} has the largest load: {_share(load)}. The target is {_share(settings.target)}, the upper limit {_share(settings.upper)}."


def delayed(wanted: int, settings: AutoscalerSettings) -> str:
    return (
        f"Parallelism {wanted} would be enough now. The job is scaled down if this holds for {_seconds(settings.scale_down_ms)} "
        "without a rescale."
    )


def growing(wanted: int) -> str:
    return f"Parallelism {wanted} would be enough now, but the load is growing."


def falling(wanted: int) -> str:
    return f"Parallelism {wanted} would be enough now. The load is falling, so one larger step follows later."


def down(current: int, wanted: int, load: float, settings: AutoscalerSettings) -> str:
    return (
        f"The load was below {_share(settings.lower)} for {_seconds(settings.scale_down_ms)}, and is {_share(load)} at parallelism "
        f"{current}. Parallelism {wanted} is enough."
    )


def waiting(message: str, wanted: int, slots: int) -> str:
    return f"{message} The job has {slots} slots, and it is scaled up when {wanted} slots are available."


def partly(message: str, possible: int, slots: int) -> str:
    return f"{message} Only {slots} slots are available, so the job is scaled up to {possible} first."
