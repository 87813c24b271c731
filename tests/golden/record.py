"""Record a set of savepoints with the engine of this checkout: `python -m tests.golden.record RELEASE`.

A set is `savepoints/RELEASE`. It contains one savepoint for each state backend, and the output of the job after each of
them (`results.json`).

The savepoints of the jobs with sources and sinks are in `borders` and `kafka`. The latter needs a broker, and therefore
Java and Maven. `python -m tests.golden.record RELEASE kafka` records only the savepoint with Kafka, for a set without
it.

Record a set with every release, before any change of state. Never record a set again.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from pathlib import Path

from penstock.connectors.file.sink.committer import FileCommitter
from penstock.testing import JobHarness
from tests.golden import borders, history
from tests.golden.capture import called_first, take_savepoint
from tests.golden.program import FEATURES

SETS = Path(__file__).parent / "savepoints"
BACKENDS = ("hashmap", "rocksdb")
PARALLELISM = 2


def record(release: str) -> None:
    """Record the set of a release.

    Raises:
            FileExistsError: the set already exists.
    """
    folder = SETS / release
    folder.mkdir(parents=True)
    of_backend = {backend: record_states(folder / backend, backend) for backend in BACKENDS}
    expected = of_backend[BACKENDS[0]]
    for backend, results_after in of_backend.items():
        if results_after != expected:
            raise ValueError(f"{backend} and {BACKENDS[0]} have different results")
    (folder / "results.json").write_text(json.dumps(expected, indent=0) + "\n")
    record_borders(folder / "borders")
    record_with_kafka(folder)


def record_with_kafka(folder: Path) -> None:
    """Record the savepoint of the job between Kafka topics into the set in `folder`.

    Raises:
            FileExistsError: the set already has this savepoint.
    """
    from tests.golden.kafka_record import record_kafka  # needs Kafka's clients, unlike the other savepoints

    (folder / "kafka").mkdir()
    record_kafka(folder / "kafka", PARALLELISM)


def record_states(target: Path, backend: str) -> dict[str, list[str]]:
    """Write the savepoint to `target`, and return the results of each output after it."""
    with JobHarness(PARALLELISM, backend=backend) as harness:
        history.build(harness)
        history.push_before(harness)
        before = {name: Counter(history.results(harness, name)) for name in FEATURES}
        take_savepoint(harness, target)
        history.push_after(harness)
        return {name: sorted((Counter(history.results(harness, name)) - before[name]).elements()) for name in FEATURES}


def record_borders(target: Path) -> None:
    """Write the savepoint to `target/savepoint` and the files, as they were before the first commit, to `target/out`."""
    shutil.rmtree(borders.FOLDER, ignore_errors=True)
    borders.write_input("first.txt", borders.LINES)
    borders.Answers.held = True
    kept = target / "out"

    def keep_files() -> None:
        if not kept.exists():
            shutil.copytree(borders.FOLDER / "out", kept)

    with (
        called_first(borders.Ledger, "commit", keep_files),
        called_first(FileCommitter, "commit", keep_files),
        JobHarness(PARALLELISM, configuration={"penstock.epoch.max-records": "150"}) as harness,
    ):
        borders.build(harness)
        harness.push("asked", 1, 2, 3, 4)
        harness._start()
        harness._driver._step()
        harness.clock.set(2_000)
        harness._journal.move_horizon()
        harness._driver._step()
        take_savepoint(harness, target / "savepoint")
        harness._driver.master.parts.commits.drain()
    borders.Answers.held = False


if __name__ == "__main__":
    if sys.argv[2:] == ["kafka"]:
        record_with_kafka(SETS / sys.argv[1])
    else:
        record(sys.argv[1])
