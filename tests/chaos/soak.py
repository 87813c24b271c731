"""Random faults at random moments, on a job that checks itself: no loss, no duplicate, ever.

    python -m tests.chaos.soak --minutes 30 --seed 7 --runner batched

The JobManager is a process of its own, so it is hurt like everything else. Faults: an exception in the user's function;
SIGKILL of a Python worker, an executor, a Spark worker, the JobManager; a JobManager that stands still and comes back when
another has taken over; live rescales and savepoints in between; with `--s3`, the store away for up to 30 seconds. The seed is
printed; it fixes what is done and when, as far as a machine of many processes can be fixed.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from penstock.cli.client import RestClient
from penstock.common.errors import PenstockError
from tests.integration.engine.selfcheck import processes
from tests.integration.engine.selfcheck.driver import configuration, settings_for
from tests.integration.engine.selfcheck.job import Plan
from tests.integration.engine.selfcheck.main import REST, argument
from tests.integration.engine.selfcheck.masters import Master, latest_checkpoint
from tests.integration.engine.selfcheck.output import problems_of
from tools.s3server import S3Server

RATE = 1_000
"""Records per second."""
READING = 0.5
"""Part of the time in which the job reads, between what is done to it; the rest of its records are read in peace at the end."""
STUCK_S = 240.0
"""A job that completes no checkpoint for that long does not make progress any more."""
PARALLELISMS = (1, 2, 3, 4)
AWAY_S = 30.0
"""The store is away for that long at most."""


@dataclass
class Report:
    """What was done, and what came of it."""

    seed: int
    faults: Counter[str] = field(default_factory=Counter)
    recoveries: dict[str, list[float]] = field(default_factory=dict)
    """Seconds from a fault to the next completed checkpoint."""
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {sum(self.faults.values())} faults"]
        for name, times in sorted(self.recoveries.items()):
            times = sorted(times)
            lines.append(
                f"  {name}: {self.faults[name]} times, next checkpoint after {times[len(times) // 2]:.1f} s in the "
                f"median, {times[-1]:.1f} s at most"
            )
        return "\n".join([*lines, *(self.problems or ["  exactly once"])])


class Soak:
    """One run.

    Args:
        seconds: how long faults are done; the job then reads on to its end.
        pause_s: between the recovery from one fault and the next fault: at least, at most.
        folder: for logs, checkpoints and output; what it holds is left when something went wrong.
        s3: a started server, for checkpoints and output; it is taken away now and then.
    """

    def __init__(
        self,
        runner: str,
        seed: int,
        seconds: float,
        folder: Path,
        pause_s: tuple[float, float] = (0.2, 4.0),
        s3: S3Server | None = None,
        backend: str = "hashmap",
    ) -> None:
        self.random = random.Random(seed)
        self.seconds = seconds
        self.folder = folder
        self.pause_s = pause_s
        self.job_id = uuid.UUID(int=self.random.getrandbits(128)).hex
        self.s3 = s3
        bucket = f"soak-{self.job_id[:12]}"
        if s3 is not None:
            s3.create_bucket(bucket)
        self.storage = folder if s3 is None else s3.root / "data" / bucket
        """Where checkpoints can be looked at; the S3 server keeps objects as files."""
        root = f"file://{folder}" if s3 is None else f"s3://{bucket}"
        self.output = f"{root}/output"
        keys = 20
        self.crash_when = folder / "raise"
        records = int(RATE * seconds * READING)
        self.plan = Plan(per_key=max(100, records // keys), keys=keys, rate=RATE, crash_when=str(self.crash_when))
        self.settings = {
            **configuration(runner, root),
            **({} if s3 is None else settings_for(s3)),
            "rest.port": "0",
            "restart-strategy.fixed-delay.attempts": "1000000",
            "state.backend.type": backend,
        }
        self.report = Report(seed)
        self._masters: list[Master] = []
        self._faults: list[tuple[str, Callable[[], bool], int]] = [
            ("exception", self._raise, 2),
            ("python worker", self._kill_python_worker, 5),
            ("executor", self._kill_executor, 4),
            ("Spark worker", self._kill_worker, 2),
            ("JobManager", self._kill_master, 1),
            ("zombie JobManager", self._zombie, 1),
            ("rescale", self._rescale, 3),
            ("savepoint", self._savepoint, 1),
            *([] if s3 is None else [("store away", self._store_away, 2)]),
        ]

    @property
    def master(self) -> Master:
        """The JobManager that leads, or is about to."""
        return self._masters[-1]

    def run(self) -> Report:
        print(f"seed {self.report.seed}, {self.plan.total} records, {self.folder}", flush=True)
        try:
            self._start()
            self._await_checkpoint(3)
            until = time.monotonic() + self.seconds
            while time.monotonic() < until and self.master.process.poll() is None:
                time.sleep(self.random.uniform(*self.pause_s))
                self._hurt()
            self._finish()
            self.report.problems += problems_of(
                self.plan, self.output, None if self.s3 is None else self.s3.storage_options()
            )
        except (AssertionError, PenstockError) as error:
            self.report.problems.append(str(error))
        finally:
            for master in self._masters:
                master.__exit__()
        return self.report

    def _start(self) -> None:
        log = self.folder / f"jobmanager-{len(self._masters)}.log"
        self._masters.append(Master(argument(self.plan, self.output, self.settings, self.job_id), log))

    def _finish(self) -> None:
        code = self.master.wait(self.seconds * 3 + 300)
        assert code == 0, f"the job ended with code {code}:\n{self.master.told()}"

    def _hurt(self) -> None:
        [(name, fault, _)] = self.random.choices(self._faults, [weight for _, _, weight in self._faults])
        reached = latest_checkpoint(self.storage, self.job_id)
        print(f"{time.strftime('%H:%M:%S')} {name} after checkpoint {reached}", flush=True)
        began = time.monotonic()
        done = fault()
        if not done:
            print("  nothing was done", flush=True)
        self._await_checkpoint(latest_checkpoint(self.storage, self.job_id) + 1)
        if done:
            self.report.faults[name] += 1
            self.report.recoveries.setdefault(name, []).append(time.monotonic() - began)

    def _await_checkpoint(self, number: int) -> None:
        """Wait for progress, or for the end of the job."""
        until = time.monotonic() + STUCK_S
        while latest_checkpoint(self.storage, self.job_id) < number:
            code = self.master.process.poll()
            if code is not None:
                assert code == 0, f"the JobManager ended with code {code}:\n{self.master.told()}"
                return
            assert time.monotonic() < until, f"no progress since checkpoint {number - 1}:\n{self.master.told()}"
            self.master.note()
            time.sleep(0.05)

    # --- faults -----------------------------------------------------------------------------------------------

    # Each says whether it was done: while the job starts again there may be no process to kill.

    def _raise(self) -> bool:
        self.crash_when.touch()
        return True

    def _kill_one(self, found: list[int]) -> bool:
        if found:
            processes.kill(self.random.choice(found))
        return bool(found)

    def _of_java(self, name: str) -> list[int]:
        found = processes.descendants([self.master.process.pid])
        return [p.pid for p in found if name in p.command and "java" in p.command]

    def _kill_python_worker(self) -> bool:
        return self._kill_one(processes.python_workers([self.master.process.pid]))

    def _kill_executor(self) -> bool:
        return self._kill_one(self._of_java("CoarseGrainedExecutorBackend"))

    def _kill_worker(self) -> bool:
        return self._kill_one(self._of_java("deploy.worker.Worker"))

    def _kill_master(self) -> bool:
        self.master.note()
        self.master.kill()
        self._start()
        return True

    def _zombie(self) -> bool:
        zombie = self.master
        zombie.stop()
        reached = latest_checkpoint(self.storage, self.job_id)
        self._start()
        self._await_checkpoint(reached + self.random.randint(1, 3))
        zombie.go_on()
        code = zombie.wait(STUCK_S)
        assert code == 3, f"the zombie ended with code {code}:\n{zombie.told()}"
        return True

    def _store_away(self) -> bool:
        assert self.s3 is not None
        self.s3.pause()
        time.sleep(self.random.uniform(0.5, AWAY_S))
        self.s3.resume()
        return True

    def _rescale(self) -> bool:
        parallelism = self.random.choice(PARALLELISMS)
        return self._ask(lambda client: client.rescale(self.job_id, parallelism))

    def _savepoint(self) -> bool:
        return self._ask(lambda client: client.savepoint(self.job_id, None))

    def _ask(self, request: Callable[[RestClient], object]) -> bool:
        """Ask the JobManager for something; it may refuse, being busy with a fault."""
        answered = False
        for line in self.master.log.read_text(errors="replace").splitlines():
            if line.startswith(REST):
                try:
                    request(RestClient(line.removeprefix(REST)))
                    answered = True
                except PenstockError as error:
                    print(f"  refused: {error}", flush=True)
        return answered


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--minutes", type=float, default=5.0)
    arguments.add_argument("--seed", type=int, default=None, help="made up unless given")
    arguments.add_argument("--runner", choices=("batched", "pipelined"), default="batched")
    arguments.add_argument("--backend", choices=("hashmap", "rocksdb"), default="hashmap")
    arguments.add_argument("--s3", action="store_true", help="keep everything on a real S3 server, and hurt that too")
    told = arguments.parse_args()
    seed = random.randrange(1 << 32) if told.seed is None else told.seed
    folder = Path(tempfile.mkdtemp(prefix="penstock-soak-"))
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(S3Server(folder / "s3")) if told.s3 else None
        report = Soak(told.runner, seed, told.minutes * 60, folder, s3=server, backend=told.backend).run()
    print(report)
    if report.problems:
        print(f"logs and output: {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
