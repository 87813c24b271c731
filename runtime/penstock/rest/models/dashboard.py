"""The dashboard's data in addition to Flink's shapes."""

from __future__ import annotations

from typing import Any

from penstock.rest.models.base import Camel


class LiveVertex(Camel):
    """Rates and shares of the last seconds. `busy` and `back_pressured` are means of the subtasks. `busiest` is the maximum of `busy`."""

    id: str
    name: str
    operators: list[dict[str, str]]
    inputs: list[dict[str, str]]
    parallelism: int
    max_parallelism: int
    status: str
    records_in: int
    records_out: int
    in_per_second: float
    out_per_second: float
    busy: float
    busiest: float
    back_pressured: float
    skew: float
    """Highest rate (records/s) of a subtask, divided by the mean. 1: all rates are equal."""
    watermark: int | None = None
    hot_key: dict[str, Any] | None = None
    """Key with more records than an even share of a subtask: `key`, `keyGroup`, `subtask` and `share`."""


class LiveJob(Camel):
    """Event of `GET /jobs/:id/live`."""

    now: int
    id: str
    name: str
    state: str
    start_step: str
    end_step: str
    start: int
    end: int
    attempt: int
    restarts: int
    rescales: int
    last_rescale: dict[str, Any] | None
    parallelism: int
    max_parallelism: int
    records: int
    records_per_second: float
    """Rate of all sources together, over the same seconds as the rates of the vertices."""
    lag: int | None
    watermark: int | None
    epoch: int
    epoch_duration: float | None
    slots_total: int
    slots_available: int
    rescale_limit: int
    """Highest parallelism that a rescale can request now."""
    checkpoints: dict[str, int]
    last_checkpoint: dict[str, Any] | None
    checkpoint_interval: int
    failures: int
    last_failure: str | None
    vertices: list[LiveVertex]


class VertexLoad(Camel):
    """`GET /jobs/:id/vertices/:vid/load`: a row for each subtask, in the order of `columns`."""

    columns: list[str]
    rows: list[list[Any]]


class History(Camel):
    """`GET /jobs/:id/history`, `?vertex=` for one vertex: times (ms), and values at these times by name. null: unknown."""

    times: list[int]
    series: dict[str, list[float | None]]


class Timeline(Camel):
    """`GET /jobs/:id/timeline`: the events, the oldest first."""

    now: int
    start: int
    end: int
    states: list[dict[str, Any]]
    checkpoints: list[dict[str, Any]]
    rescales: list[dict[str, Any]]
    failures: list[dict[str, Any]]
    events: list[dict[str, Any]]


class Setting(Camel):
    """Key in effect. `source`: `default`, `cluster` or `job`. An empty `meaning` means that Penstock does not know the key."""

    key: str
    value: str
    source: str
    meaning: str


class JobSettingList(Camel):
    """`GET /jobs/:id/configuration`"""

    settings: list[Setting]


class JobConnectors(Camel):
    """`GET /jobs/:id/connectors`"""

    sources: list[dict[str, Any]]
    sinks: list[dict[str, Any]]
    pending_commits: int
    uncommitted_checkpoints: int
    committing: str


class JobStates(Camel):
    """`GET /jobs/:id/state`: the states in the newest checkpoint."""

    states: list[dict[str, Any]]


class StateEntryList(Camel):
    """`GET /jobs/:id/state/:name?uid=&key=&limit=&consistency=`: entries as columns.

    The entries come from the newest checkpoint. If `checkpoint_id` is 0, they come from the tasks of `attempt`.
    """

    checkpoint_id: int
    timestamp: int
    entries: list[dict[str, Any]]
    truncated: bool
    attempt: int = 0
