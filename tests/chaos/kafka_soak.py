"""Random faults at random moments on a job from Kafka through keyed state to Kafka, with three brokers: no loss, no duplicate.

    python -m tests.chaos.kafka_soak --faults 200 --seed 7

The job is a separate process with JobManager and tasks. The soak kills it and starts it again, often with another parallelism. It
also kills and freezes brokers, which moves leaders of partitions and coordinators of transactions and groups. The job is rescaled
while it runs, takes savepoints, and restarts from a savepoint with another parallelism. Input arrives all the time.

After each fault, the job must commit more records. At the end the soak reads all committed output. Every record must be in it
once, with counts per key without a gap. The result is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.integration.kafka.endless_job import answer, ask
from tests.integration.kafka.running import end_offsets
from tests.integration.kafka.support import JOB_ID, await_checkpoints, fill, new_name, read, records, topic, verdict
from tools.servers.kafka import KafkaServer

BROKERS = 3
IN, OUT = 6, 3
"""Number of partitions."""
BURST = 500
PATIENCE_S = 120.0
FAULTS = (
    "kill-job",
    "kill-and-rescale-job",
    "rescale-job",
    "savepoint",
    "stop-with-savepoint",
    "kill-job-at-a-savepoint",
    "stop-job-for-a-while",
    "kill-broker",
    "pause-broker",
    "kill-job-and-broker",
    "savepoint-while-a-broker-dies",
)


class Soak:
    """One run in a separate folder."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.folder = folder
        self.kafka = KafkaServer(folder / "kafka", BROKERS)
        self.done: Counter[str] = Counter()
        self.longest_s = 0.0
        self._written = 0
        self._job: subprocess.Popen[bytes] | None = None
        self._parallelism = 2

    def run(self, faults: int) -> dict[str, Any]:
        """Run this many faults. Return the result, whose `problem` is empty on success."""
        with self.kafka:
            self._in, self._out = topic(self.kafka, IN, "in"), topic(self.kafka, OUT, "out")
            self._prefix = new_name("soak")
            try:
                self._start()
                for number in range(faults):
                    self._await_progress()
                    fault = FAULTS[number] if number < len(FAULTS) else self.chance.choice(FAULTS)
                    print(f"{number + 1}: {fault}", file=sys.stderr, flush=True)
                    self._feed()
                    time.sleep(self.chance.random())  # faults happen at any moment of a checkpoint
                    self._do(fault)
                    self.done[fault] += 1
                self._await_progress()
                problem = self._await_all()
            finally:
                self._kill()
        return {
            "faults": dict(self.done),
            "records": self._written,
            "longest_gap_s": round(self.longest_s, 1),
            "problem": problem,
        }

    def _start(self, savepoint: str = "") -> None:
        program = ["-m", "tests.integration.kafka.endless_job", str(self.folder), self.kafka.bootstrap_servers]
        found = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        with (self.folder / "job.log").open("ab") as log:
            command = [
                sys.executable,
                *program,
                self._in,
                self._out,
                self._prefix,
                str(self._parallelism),
                "",
                savepoint,
            ]
            self._job = subprocess.Popen(command, stdout=log, stderr=log, env=found, start_new_session=True)

    def _kill(self) -> None:
        if self._job is not None:
            self._job.send_signal(signal.SIGKILL)
            self._job.wait()

    def _feed(self) -> None:
        fill(self.kafka.bootstrap_servers, self._in, records(BURST, self._written), IN)
        self._written += BURST

    def _do(self, fault: str) -> None:
        broker = self.chance.choice(self.kafka.nodes)
        match fault:
            case "kill-job":
                self._kill()
                self._start()
            case "kill-and-rescale-job":
                self._kill()
                self._choose_parallelism()
                self._start()
            case "rescale-job":
                self._choose_parallelism()
                ask(self.folder, "rescale", parallelism=self._parallelism)
                self._answer()
            case "savepoint":
                ask(self.folder, "savepoint")
                self._answer()
            case "savepoint-while-a-broker-dies":
                ask(self.folder, "savepoint")
                time.sleep(self.chance.random() / 5)
                self.kafka.kill(broker)
                time.sleep(self.chance.random())
                self.kafka.restart(broker)
                self._answer(may_fail=True)
            case "stop-with-savepoint":
                assert self._job is not None
                ask(self.folder, "stop")
                savepoint = self._answer()
                assert self._job.wait(PATIENCE_S) == 0, f"the job failed, see {self.folder}/job.log"
                self._choose_parallelism()
                self._start(savepoint)
            case "kill-job-at-a-savepoint":
                ask(self.folder, self.chance.choice(["savepoint", "stop"]))
                time.sleep(self.chance.random() / 5)
                self._kill()
                self._start(
                    "" if (self.folder / "checkpoints" / JOB_ID / "latest").exists() else self._newest_savepoint()
                )
            case "stop-job-for-a-while":
                assert self._job is not None
                self._job.send_signal(signal.SIGSTOP)
                # here and below: the duration of the fault
                time.sleep(3 * self.chance.random())
                self._job.send_signal(signal.SIGCONT)
            case "kill-broker":
                self.kafka.kill(broker)
                time.sleep(2 * self.chance.random())
                self.kafka.restart(broker)
            case "pause-broker":
                self.kafka.pause(broker)
                time.sleep(6 * self.chance.random())
                self.kafka.resume(broker)
            case "kill-job-and-broker":
                self._kill()
                self.kafka.kill(broker)
                self._start()
                self.kafka.restart(broker)

    def _newest_savepoint(self) -> str:
        """Return the newest savepoint. A stopped job must start from it, because a job with only the same id would start empty."""
        found = max((self.folder / "savepoints").glob("*/_metadata"), key=lambda path: path.stat().st_mtime)
        return found.parent.as_uri()

    def _choose_parallelism(self) -> None:
        self._parallelism = self.chance.choice([n for n in (1, 2, 3, 4) if n != self._parallelism])

    def _answer(self, *, may_fail: bool = False) -> str:
        """Return the path of the savepoint that was requested."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := answer(self.folder)) is None:
            assert time.monotonic() < deadline, f"no response for {PATIENCE_S:.0f} s, see {self.folder}/job.log"
            time.sleep(0.05)
        assert may_fail or found["failure"] is None, f"{found['failure']}, see {self.folder}/job.log"
        return found["location"] or ""

    def _await_progress(self) -> None:
        """Wait until more records are committed, including new input."""
        before, began = end_offsets(self.kafka, self._out), time.monotonic()
        self._feed()
        while end_offsets(self.kafka, self._out) <= before:
            assert time.monotonic() - began < PATIENCE_S, (
                f"nothing was committed for {PATIENCE_S:.0f} s, see {self.folder}/job.log"
            )
            assert self._job is not None
            assert self._job.poll() is None, f"the job ended unexpectedly, see {self.folder}/job.log"
            time.sleep(0.2)
        self.longest_s = max(self.longest_s, time.monotonic() - began)

    def _await_all(self) -> str:
        deadline = time.monotonic() + PATIENCE_S
        while len(read(self.kafka.bootstrap_servers, self._out)) < self._written and time.monotonic() < deadline:
            time.sleep(0.5)
        await_checkpoints(self.folder)
        return verdict(self.kafka.bootstrap_servers, self._out, self._written)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = random.randrange(10**6) if options.seed is None else options.seed
    print(f"seed {seed}", file=sys.stderr, flush=True)
    folder = Path(tempfile.mkdtemp(prefix="penstock-kafka-soak-"))
    began = time.monotonic()
    found = Soak(folder, seed).run(options.faults)
    print(
        json.dumps({"seed": seed, **found, "minutes": round((time.monotonic() - began) / 60, 1), "folder": str(folder)})
    )
    return 1 if found["problem"] else 0


if __name__ == "__main__":
    sys.exit(main())
