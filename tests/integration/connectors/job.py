"""The job of a test: its starts, requests and output."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.job.requests import Operation
from tests.in_process import started
from tests.integration.connectors.connector import Connector
from tests.integration.connectors.program import KEYS, MARKS, build, options

PATIENCE_S = 60.0
POLL_S = 0.02


class Job:
    """A job with this connector."""

    def __init__(self, connector: Connector) -> None:
        self.connector = connector
        self.numbers: list[int] = []
        """The numbers that the output must contain."""
        self._next = 0
        self._master: JobMaster | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def master(self) -> JobMaster:
        assert self._master is not None, "start() comes first"
        return self._master

    # --- the life of the job ----------------------------------------------------------------------------------

    def start(self, parallelism: int, restore: str = "") -> None:
        """Start the job in this process, from a savepoint or from its newest checkpoint."""
        self._master = started(build(self.connector, parallelism), options(self.connector, restore))

    def run_until_killed(self, call: str) -> None:
        """Run the job in a separate process, and feed it until the call kills it."""
        kind = type(self.connector)
        arguments = [kind.__module__, kind.__name__, str(self.connector.folder), self.connector.address, call]
        found = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        log = self.connector.folder / "job.log"
        with log.open("ab") as output:
            program = [sys.executable, "-m", "tests.integration.connectors.program", *arguments]
            self._process = subprocess.Popen(program, stdout=output, stderr=output, env=found)
        deadline = time.monotonic() + PATIENCE_S
        while self._process.poll() is None:
            assert time.monotonic() < deadline, f"the call {call!r} has not come: {log.read_text()[-3000:]}"
            if (self.connector.folder / "started").exists():
                self.feed(20)
            time.sleep(0.1)  # spread the numbers over several checkpoints
        assert self._process.returncode == -9, log.read_text()[-3000:]

    def end(self) -> None:
        """Cancel the job, and kill its process."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._master is not None and not self._master.is_done:
            self._master.request(Operation("cancel"))
            self._master.wait(30)

    def restart_after_failure(self) -> None:
        """Let a function of the job raise at its next record."""
        (self.connector.folder / "raise").touch()

    # --- input ------------------------------------------------------------------------------------------------

    def feed(self, count: int) -> None:
        """Add the next numbers to the input."""
        numbers = range(self._next, self._next + count)
        self.connector.feed(numbers)
        self.numbers += numbers
        self._next += count

    def feed_poison(self) -> str:
        """Add a record that the source or the sink must refuse. Return a part of the error."""
        if self.connector.undecodable:
            self.connector.feed_poison()
            return self.connector.undecodable
        (self.connector.folder / "poison").write_text(str(self._next))
        self.connector.feed([self._next])
        self._next += 1
        return self.connector.refused

    # --- requests ---------------------------------------------------------------------------------------------

    def request(self, kind: str, **arguments: Any) -> Operation:
        """Request an operation and wait for its answer."""
        operation = self.master.request(Operation(kind, arguments))
        assert operation.wait(PATIENCE_S), f"no answer to {kind} after {PATIENCE_S:.0f} s: {self.describe()}"
        return operation

    def rescale(self, parallelism: int) -> None:
        """Rescale the job. Request it again if the job fails at the same time."""
        self.until(lambda: self.request("rescale", parallelism=parallelism).failure is None, "rescale")
        self.until(lambda: self.master.parallelism == parallelism, f"parallelism {parallelism}")

    def stop(self) -> str:
        """Stop the job with a savepoint, and return its location."""
        operation = self.request("stop")
        assert operation.failure is None, operation.failure
        self.master.wait(30)
        return operation.location or ""

    # --- output -----------------------------------------------------------------------------------------------

    def until(self, holds: Callable[[], bool], description: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert not self.master.is_done, f"no {description}, because the job has ended: {self.describe()}"
            assert time.monotonic() < deadline, f"no {description} after {PATIENCE_S:.0f} s: {self.describe()}"
            time.sleep(POLL_S)

    def until_written(self, count: int) -> None:
        """Wait until this many different numbers are in the output."""
        self.until(lambda: self._written() >= count, f"{count} numbers")

    def _written(self) -> int:
        rows = self.connector.rows()
        if self.connector.is_keyed:
            return sum(int(text.partition(":")[2]) for key, text in rows if key < MARKS)
        return len({number for number, _ in rows})

    def until_failed(self, text: str) -> None:
        """Wait until the job has failed with an error that contains the text."""
        self.until(lambda: any(text in failure.message for failure in list(self.master.history.failures)), text)

    def check(self) -> None:
        """Wait for all numbers, end the job, and check that it has lost and repeated none."""
        self.until_written(len(self.numbers))
        counts = Counter(number % KEYS for number in self.numbers)
        if self.connector.is_keyed:
            last = [(key, f"{key}:{counts[key]}") for key in sorted(counts)]
            marks = [(MARKS + key, text) for key, text in last if counts[key] % 2]
            self.until(lambda: sorted(self.connector.rows()) == last + marks, f"rows {last + marks}")
            self.end()
            assert sorted(self.connector.rows()) == last + marks
            return
        self.end()
        rows = self.connector.rows()
        numbers = sorted(number for number, _ in rows)
        assert sorted(set(numbers)) == self.numbers, "numbers are lost"
        if self.connector.is_exactly_once:
            assert numbers == self.numbers, "numbers are repeated"
            expected = sorted(f"{key}:{count}" for key in counts for count in range(1, counts[key] + 1))
            assert sorted(text for _, text in rows) == expected, "the state has lost or repeated records"
        if self.connector.is_ordered:
            rows.sort(key=lambda row: int(row[1].partition(":")[2]))
            for key in counts:
                of_key = [number for number, _ in rows if number % KEYS == key]
                assert of_key == sorted(of_key), f"the numbers of key {key} are out of order"

    def describe(self) -> str:
        """Describe the job's state for the message of a failed test."""
        master = self.master
        rows = self.connector.rows()
        state = (
            f"{master.history.status.value}, {master._requests.state}, {len(rows)} rows, {len(self.numbers)} numbers"
        )
        return "\n".join([state, *(event.text for event in list(master.history.events)[-30:])])
