"""A recording of the measurements of a job as JSON lines, and its replay with the same or with other settings.

The first line is a header with the job's name and the keys of the autoscaler that the job sets. Each further line is a sample or a
rescale, in the order of time. A replay gets the decisions that these measurements lead to. It does not simulate how the job would have
behaved with another parallelism.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.common.errors import PenstockError
from penstock.jobmanager.autoscaling.decide import decide
from penstock.jobmanager.autoscaling.decision import Decision
from penstock.jobmanager.autoscaling.history import History
from penstock.jobmanager.autoscaling.samples import PastRescale, Sample
from penstock.jobmanager.autoscaling.settings import PREFIXES, AutoscalerSettings

FORMAT = 1


class InvalidRecording(PenstockError):
    """Error of a file that is not a recording of the autoscaler."""

    code = "INVALID_RECORDING"


def record(job_name: str, configuration: Mapping[str, str], history: History) -> Iterator[str]:
    """Yield the lines of the recording of a history."""
    keys = {key: value for key, value in configuration.items() if key.startswith(PREFIXES)}
    yield json.dumps({"autoscaler": FORMAT, "job": job_name, "configuration": keys}) + "\n"
    entries = [(one.at_ms, 0, {"rescale": one.to_json()}) for one in list(history.rescales)]
    entries += [(one.at_ms, 1, {"sample": one.to_json()}) for one in list(history.samples)]
    for _, _, entry in sorted(entries, key=lambda one: one[:2]):
        yield json.dumps(entry, separators=(",", ":")) + "\n"


def replay(lines: Iterable[str], definitions: Mapping[str, str]) -> Iterator[Decision]:
    """Yield the decision after each sample of a recording.

    Args:
        lines: lines of the recording.
        definitions: configuration keys that replace those of the recording.

    Raises:
        InvalidRecording: a line is not part of a recording. The error names the line.
        InvalidJob: a setting is not valid.
    """
    numbered = enumerate(lines, 1)
    number, first = next(numbered, (1, ""))
    header = _parsed(first, number)
    if header.get("autoscaler") != FORMAT:
        raise InvalidRecording(
            f"line {number} is not the header of a recording of the autoscaler in format {FORMAT}",
            remedy="download a recording with GET /jobs/:id/autoscaler/recording",
        )
    settings = AutoscalerSettings.from_configuration({**header.get("configuration", {}), **definitions})
    history = History(settings)
    for number, line in numbered:
        if not line.strip():
            continue
        entry = _parsed(line, number)
        try:
            if "rescale" in entry:
                history.add_rescale(PastRescale.from_json(entry["rescale"]))
                continue
            history.add_sample(Sample.from_json(entry["sample"]))
        except (KeyError, TypeError, ValueError) as error:
            raise _not_valid(number, f"{type(error).__name__}: {error}") from None
        yield decide(settings, history)


def _parsed(line: str, number: int) -> dict[str, Any]:
    try:
        values = json.loads(line)
    except ValueError as error:
        raise _not_valid(number, str(error)) from None
    if not isinstance(values, dict):
        raise _not_valid(number, "it is not an object")
    return values


def _not_valid(number: int, why: str) -> InvalidRecording:
    return InvalidRecording(
        f"line {number} is not a sample or a rescale of a recording: {why}",
        remedy="download the recording again with GET /jobs/:id/autoscaler/recording",
    )
