"""Random faults at random moments, on a job that verifies itself: never a loss or a duplicate.

    python -m tests.chaos.soak --minutes 40 --seed 7
    python -m tests.chaos.soak --minutes 5 --runner pipelined --backend rocksdb --json soak.json

Without `--runner` and `--backend`, all four pairs run, each for its share of the time. The JobManager is a separate process
and a target of faults. Storage is a real S3 server behind a proxy. `tests.chaos.faults.kinds` has the catalogue of faults.

The next fault happens when the job has made progress since the last one: a later checkpoint is complete and has more records.
Some faults happen while the job still recovers. Every kind happens a minimum number of times, and the rest is random. The soak
prints its seed, which fixes the faults and their order, as far as a machine of many processes allows.

`--kafka` makes the job read from and write to three Kafka brokers, which are killed and frozen, too.

At the end the soak reads the output, compares it with the expected output, and prints the result as JSON.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from penstock.common.errors import PenstockError
from tests.chaos.faults.kinds import Fault, Faults
from tests.chaos.faults.orders import Orders
from tests.chaos.faults.storage_proxy import StorageProxy
from tests.chaos.job import SoakPlan
from tests.chaos.kafka_ends import BROKERS, KafkaRun
from tests.chaos.left_behind import folders_left, memory, objects_left, processes_left
from tests.chaos.report import Report, dumps, total_of
from tests.chaos.running_job import Progress, RunningJob
from tests.chaos.verdict import problems_of
from tools.servers.kafka import KafkaServer
from tools.servers.s3 import S3Server

RATE = 500.0
"""Records per second."""
KEYS = 20
OVERLAPS = 0.35
"""Share of the faults that have a second one at the same time."""
RUNNERS = ("pipelined", "batched")
BACKENDS = ("rocksdb", "hashmap")
_SLACK_S = 600.0
"""Seconds of input in addition to the maximum time of the faults."""
_END_S = 400.0
_TRIES = 4
"""Maximum number of tries until a required kind takes effect."""


class Soak:
    """One run of one job.

    Args:
        seconds: maximum time of the faults; the job then reads to the end of its input.
        folder: for logs and temporary files; it is kept if something failed.
        s3: a running server; `proxy` is in front of it.
        once: do every kind once, and then end.
        wanted: end after this many faults; None means after the time.
        kinds: names of the kinds to do; None means all except those in `without`.
        checkpoint_timeout_s: after two consecutive checkpoints over this time, the job takes a function for hung. If an attempt takes
            as long to start on a busy machine, the job never leaves its restarts.
        kafka: running brokers that are source and sink; None means files.
    """

    def __init__(
        self,
        runner: str,
        backend: str,
        seed: int,
        seconds: float,
        folder: Path,
        s3: S3Server,
        proxy: StorageProxy,
        *,
        once: bool = False,
        wanted: int | None = None,
        kinds: set[str] | None = None,
        without: Collection[str] = (),
        checkpoint_timeout_s: int = 30,
        kafka: KafkaServer | None = None,
    ) -> None:
        self.random = random.Random(seed)
        self.seconds = seconds
        self.wanted = wanted
        self.once = once
        orders = folder / "orders"
        orders.mkdir(parents=True)
        self.kafka = None if kafka is None else KafkaRun(kafka)
        brokers = "" if kafka is None else kafka.bootstrap_servers
        self.plan = SoakPlan(int(RATE * (seconds + _SLACK_S)) // KEYS, str(orders), RATE, KEYS, kafka=brokers)
        job_id = uuid.UUID(int=self.random.getrandbits(128)).hex
        self.job = RunningJob(self.plan, runner, backend, job_id, folder, s3, proxy, checkpoint_timeout_s)
        self.faults = Faults(self.job, random.Random(self.random.getrandbits(64)), without, kafka)
        self.kinds = [
            fault for fault in self.faults.faults if fault.name in (kinds or {fault.name}) and fault.name not in without
        ]
        self.report = Report(seed, runner, backend)
        self._deck = self._shuffled()
        self._tries = dict.fromkeys((fault.name for fault in self.kinds), 0)

    def run(self) -> Report:
        report, job = self.report, self.job
        print(f"seed {report.seed}, {report.runner}, {report.backend}, {job.folder}", flush=True)
        report.load.append(round(os.getloadavg()[0], 1))
        began = time.monotonic()
        try:
            if self.kafka is not None:
                self.kafka.begin(self.plan)
            job.start()
            job.await_progress(Progress(0, 0, 0))
            report.memory_mb["start"] = memory(job)
            self._hurt(time.monotonic() + self.seconds)
            report.memory_mb["end"] = memory(job)
            self._finish()
            if self.kafka is None:
                report.problems += problems_of(self.plan, job.output, job.s3.storage_options())
            else:
                report.problems += self.kafka.problems(self.plan)
                report.left_behind["open transactions"] = self.kafka.open_transactions()
            report.left_behind["storage"] = objects_left(job)
            report.left_behind["processes"] = processes_left(job)
            report.left_behind["temporary folders"] = folders_left(job)
        except (AssertionError, PenstockError) as error:
            report.problem(f"{type(error).__name__}: {error}")
        finally:
            self.faults.foreign_clients.hang_up()
            job.close()
        report.seconds = time.monotonic() - began
        report.load.append(round(os.getloadavg()[0], 1))
        report.attempts_failed = job.failovers
        report.details |= {
            "connections of foreign clients": self.faults.connections,
            "requests of storage": job.proxy.requests,
            "requests of storage disturbed": {disorder.name: count for disorder, count in job.proxy.done.items()},
            "requests answered": self.faults.requests.answers,
            "starts refused": job.starts_refused,
            "kinds not done": [fault.name for fault in self.kinds if not report.faults[fault.name]],
        }
        return report

    # --- which fault ------------------------------------------------------------------------------------------

    def _shuffled(self) -> list[Fault]:
        """Return the required faults in random order."""
        deck = [fault for fault in self.kinds for _ in range(1 if self.once else fault.least)]
        self.random.shuffle(deck)
        return deck

    def _next(self, beside: Fault | None = None) -> Fault | None:
        """Return the next fault, from the required ones first. `beside` is a fault that happens at the same time."""

        def fits(fault: Fault) -> bool:
            return beside is None or (fault.may_overlap and fault.name.split()[0] != beside.name.split()[0])

        for place, fault in enumerate(self._deck):
            if fits(fault):
                return self._deck.pop(place)
        if self.once:
            return None
        rest = [fault for fault in self.kinds if fits(fault)]
        return self.random.choices(rest, [fault.weight for fault in rest])[0] if rest else None

    def _reschedule(self, fault: Fault) -> None:
        """Try a fault again later, because it had no effect."""
        self._tries[fault.name] += 1
        if self._tries[fault.name] < _TRIES:
            self._deck.append(fault)

    # --- doing it ---------------------------------------------------------------------------------------------

    def _hurt(self, until: float) -> None:
        while time.monotonic() < until and (self.wanted is None or self.report.total < self.wanted):
            fault = self._next()
            if fault is None or self.job.master.process.poll() is not None:
                return
            beside = self._next(fault) if self.random.random() < OVERLAPS else None
            self._do(fault, beside)

    def _do(self, fault: Fault, beside: Fault | None) -> None:
        """Do one fault, and perhaps a second one at the same time, until the job has recovered from both."""
        before = self.job.progress()
        print(
            f"{time.strftime('%H:%M:%S')} {fault.name}{f' + {beside.name}' if beside else ''} at {tuple(before)}",
            flush=True,
        )
        failovers = self.job.failovers
        began = time.monotonic()
        other = None if beside is None else _Beside(beside, random.Random(self.random.getrandbits(64)))
        pause_s = self.random.uniform(0.0, 1.0)
        chance = random.Random(self.random.getrandbits(64))
        if other is not None:
            other.start(pause_s)
        done = fault.do(chance)
        felt = [(fault, done)]
        if other is not None:
            felt.append((other.fault, other.wait()))
        epoch = before.epoch if done and fault.fails_over else 0
        self.job.await_progress(self.job.progress(), epoch=epoch)
        took = time.monotonic() - began
        for kind, is_done in felt:
            self.report.count(kind.name, done=is_done)
            if is_done:
                self.report.recovered(kind.name, took)
            else:
                print(f"  {kind.name}: without effect", flush=True)
                self._reschedule(kind)
        if all(is_done for _, is_done in felt) and len(felt) > 1:
            self.report.overlapping += 1
        if beside is None and fault.name.startswith("foreign client") and self.job.failovers > failovers:
            self.report.failed_by_foreign_clients += 1
            print("  the job failed over", flush=True)

    def _finish(self) -> None:
        """Set the end of the input, and wait until the job has reached it."""
        self.faults.foreign_clients.hang_up()
        self.job.proxy.wait_for_late()
        per_key = self.job.numbers_read() if self.kafka is None else self.kafka.end()
        self.plan = replace(self.plan, per_key=per_key)
        self.report.records = self.plan.total
        if self.kafka is None:
            self.job.orders.give(Orders.END, str(self.plan.per_key))
        else:
            self.job.await_(lambda: self.job.progress().records >= self.plan.total, "all input was read", _END_S)
            self._drain()
        self.job.await_(lambda: False, "the job had finished", _END_S)

    def _drain(self) -> None:
        """Drain the job. A job that restarts at the moment refuses, and gets the request again."""
        until = time.monotonic() + _END_S
        while True:
            request = self.faults.requests.ask("stop with drain", self.random)
            if request.is_accepted and not request.failure:
                return
            assert time.monotonic() < until, f"the job does not drain: {request.failure}"
            time.sleep(0.5)


class _Beside:
    """A fault in a separate thread."""

    def __init__(self, fault: Fault, chance: random.Random) -> None:
        self.fault = fault
        self._chance = chance
        self._done = False
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start(self, pause_s: float) -> None:
        def run() -> None:
            time.sleep(pause_s)
            try:
                self._done = self.fault.do(self._chance)
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=run, name=self.fault.name, daemon=True)
        self._thread.start()

    def wait(self) -> bool:
        """Return whether it took effect."""
        assert self._thread is not None
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._done


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--minutes", type=float, default=5.0, help="minutes of faults, all runs together")
    arguments.add_argument("--seed", type=int, default=None, help="random by default")
    arguments.add_argument("--runner", choices=RUNNERS, action="append", help="default: both")
    arguments.add_argument("--backend", choices=BACKENDS, action="append", help="default: both")
    arguments.add_argument("--faults", type=int, default=None, help="end a run after this many faults")
    arguments.add_argument("--kind", action="append", help="only these kinds of faults")
    arguments.add_argument("--without", action="append", default=[], help="leave out these kinds of faults")
    arguments.add_argument("--checkpoint-timeout", type=int, default=30, metavar="SECONDS")
    arguments.add_argument("--kafka", action="store_true", help="from Kafka to Kafka")
    arguments.add_argument("--json", type=Path, default=None, help="file for the figures")
    options = arguments.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # end the JobManagers, too
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    pairs = [(runner, backend) for runner in options.runner or RUNNERS for backend in options.backend or BACKENDS]
    reports = []
    for number, (runner, backend) in enumerate(pairs):
        folder = Path(tempfile.mkdtemp(prefix="penstock-soak-"))
        with ExitStack() as servers:
            s3 = servers.enter_context(S3Server(folder / "s3"))
            proxy = servers.enter_context(StorageProxy(s3.endpoint_url))
            kafka = servers.enter_context(KafkaServer(folder / "kafka", BROKERS)) if options.kafka else None
            soak = Soak(
                runner,
                backend,
                seed + number,
                options.minutes * 60 / len(pairs),
                folder,
                s3,
                proxy,
                wanted=options.faults,
                kinds=set(options.kind) if options.kind else None,
                without=set(options.without),
                checkpoint_timeout_s=options.checkpoint_timeout,
                kafka=kafka,
            )
            report = soak.run()
        reports.append(report)
        print(report, flush=True)
        if report.problems:
            print(f"logs and storage: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder)
        if options.json is not None:
            options.json.write_text(dumps(total_of(reports)))
    print(dumps(total_of(reports)))
    return 1 if any(report.problems for report in reports) else 0


if __name__ == "__main__":
    sys.exit(main())
