"""The soak's job at run time: its JobManagers, its storage, its progress."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from penstock.checkpoint.files.codec import decode_manifest
from penstock.checkpoint.files.manifest import Manifest
from penstock.cli.client import RestClient
from penstock.common.errors import StorageError
from tests.chaos import jobmanager
from tests.chaos.faults.clock import SettableClock
from tests.chaos.faults.orders import Orders
from tests.chaos.faults.storage_proxy import StorageProxy
from tests.chaos.job import SoakPlan
from tests.integration.engine.selfcheck import processes
from tests.integration.engine.selfcheck.driver import configuration, settings_for
from tests.integration.engine.selfcheck.main import REST
from tests.integration.engine.selfcheck.masters import Master
from tools.servers.s3 import S3Server

STUCK_S = 400.0
"""Seconds without progress after which the job counts as stuck."""
_MARGIN_S = 20.0
"""Distance of the end of the input from the current position, in seconds."""
_STARTS = 10
"""Maximum number of starts. A JobManager ends if its storage is not usable, and the soak starts it again."""
_FAILED_OVER = "failed and restarts in"
"""The message in a JobManager's log for each failed attempt."""


class Progress(NamedTuple):
    """The newest complete checkpoint, according to its manifest."""

    epoch: int
    checkpoint: int
    records: int
    """Number of records that the sources had read at that time."""


class RunningJob:
    """One job, over all of its JobManagers.

    Args:
        folder: for orders, logs and temporary files.
        s3: a running server. The job accesses it through `proxy`.
    """

    def __init__(
        self,
        plan: SoakPlan,
        runner: str,
        backend: str,
        job_id: str,
        folder: Path,
        s3: S3Server,
        proxy: StorageProxy,
        checkpoint_timeout_s: int,
    ) -> None:
        self.plan = plan
        self.job_id = job_id
        self.folder = folder
        self.s3 = s3
        self.proxy = proxy
        self.orders = Orders(plan.orders)
        self.bucket = f"soak-{job_id[:12]}"
        s3.create_bucket(self.bucket)
        root = f"s3://{self.bucket}"
        self.output = f"{root}/output"
        self.savepoints = f"{root}/savepoints"
        self._data = s3.root / "data" / self.bucket
        """The S3 server stores objects as files."""
        self.settings = {
            **configuration(runner, root),
            **settings_for(s3),
            "s3.endpoint": proxy.endpoint_url,
            "rest.port": "0",
            "security.rest.local-token": "false",
            "execution.checkpointing.interval": "300 ms",
            "execution.checkpointing.timeout": f"{checkpoint_timeout_s} s",
            "execution.checkpointing.tolerable-failed-checkpoints": "1",
            "restart-strategy.fixed-delay.attempts": "1000000",
            "restart-strategy.fixed-delay.delay": "50 ms",
            "state.backend.type": backend,
        }
        self.starts_refused = 0
        """Number of JobManagers that ended before they accepted their job, because storage was disturbed."""
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.clock = SettableClock(folder)
        """The clock of the JobManagers and all of their children."""
        self.masters: list[Master] = []
        self._parallelism = 2
        self._restore = ""

    # --- JobManagers ------------------------------------------------------------------------------------------

    @property
    def master(self) -> Master:
        """The JobManager that leads, or is about to."""
        return self.masters[-1]

    def start(self, *, restore: str = "") -> None:
        self._restore = restore
        spec = jobmanager.argument(
            self.plan, self.output, self.settings, self.job_id, parallelism=self._parallelism, restore=restore
        )
        log = self.folder / f"jobmanager-{len(self.masters)}.log"
        environment = {"TMPDIR": str(self.temporary), **self.clock.environment}
        self.masters.append(Master(spec, log, module="tests.chaos.jobmanager", environment=environment))

    def upgrade(self, savepoint: str) -> None:
        """Start the next variant of the program from a savepoint."""
        self.plan = replace(self.plan, variant=self.plan.variant + 1)
        self.start(restore=savepoint)

    def put(self, name: str, content: bytes) -> Path:
        """Put an object into the job's checkpoint folder, like any client with access to the bucket can."""
        path = self._data / "checkpoints" / self.job_id / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def close(self) -> None:
        for master in self.masters:
            master.__exit__()

    @property
    def pids(self) -> list[int]:
        """The JobManager's process and all of its descendants."""
        root = self.master.process.pid
        return [root, *(process.pid for process in processes.descendants([root]))]

    def describe(self) -> str:
        """Return the end of the JobManager's log. Before that, the log also has the stacks of its threads."""
        return f"{self.master.describe()[-1500:]}\nmore in {self.master.log}"

    def client(self) -> RestClient | None:
        """Return a client of the JobManager's REST API, or None before the API is up."""
        with contextlib.suppress(OSError):
            for line in self.master.log.read_text(errors="replace").splitlines():
                if line.startswith(REST):
                    return RestClient(line.removeprefix(REST))
        return None

    @property
    def failovers(self) -> int:
        return sum(master.log.read_text(errors="replace").count(_FAILED_OVER) for master in self.masters)

    def newest_savepoint(self) -> str:
        """Return the URL of the newest complete savepoint."""
        found = sorted(self._data.glob("savepoints/savepoint-*/_metadata"), key=lambda path: path.stat().st_mtime)
        assert found, "no savepoint exists"
        return f"{self.savepoints}/{found[-1].parent.name}"

    # --- progress ---------------------------------------------------------------------------------------------

    def progress(self) -> Progress:
        return max(map(_progress, self._manifests()), default=Progress(0, 0, 0))

    def _manifests(self) -> list[Manifest]:
        """Return the manifests of the existing checkpoints."""
        found = []
        for path in self._data.glob(f"checkpoints/{self.job_id}/chk-*/_metadata"):
            if not path.parent.name[len("chk-") :].isdigit():
                continue
            with contextlib.suppress(FileNotFoundError, StorageError):  # deleted in the meantime, or written by a fault
                found.append(decode_manifest(path.read_bytes(), str(path)))
        return found

    def attempts(self) -> int:
        """Return the number of the newest attempt, also without a checkpoint: the highest claim to lead."""
        names = (path.name for path in self._data.glob(f"checkpoints/{self.job_id}/leader/*"))
        return max((int(name) for name in names if name.isdigit()), default=0)

    def numbers_read(self) -> int:
        """Return a lower bound of the numbers per key that were read from some split, also since the newest checkpoint."""
        newest = max(self._manifests(), key=_progress)
        [source] = newest.sources.values()
        furthest = max(split.position - split.properties["start"] for split in source.splits)
        since_s = time.time() + self.clock.shift_s - newest.trigger_timestamp / 1000 + _MARGIN_S
        plan = self.plan
        return int(furthest / (plan.keys // plan.splits) + since_s * plan.rate / plan.keys) + 1

    def await_progress(self, after: Progress, *, epoch: int = 0) -> bool:
        """Wait until a complete checkpoint has more records. Return False if the job has finished.

        Args:
            epoch: the checkpoint must be of a later attempt than this.
        """

        def is_there() -> bool:
            now = self.progress()
            return now.epoch > epoch and now.checkpoint > after.checkpoint and now.records > after.records

        return self.await_(is_there, "more records were in a checkpoint")

    def await_(self, condition: Callable[[], bool], description: str, patience_s: float = STUCK_S) -> bool:
        """Wait until a condition is true. Return False if the job finishes first."""
        until = time.monotonic() + patience_s
        for turn in itertools.count():
            if condition():
                return True
            code = self.master.process.poll()
            if code == jobmanager.FAILED and self.client() is None and self.starts_refused < _STARTS:
                self.starts_refused += 1
                self.start(restore=self._restore)
            elif code is not None:
                assert code == jobmanager.FINISHED, f"the JobManager ended with code {code}:\n{self.describe()}"
                return False
            assert time.monotonic() < until, (
                f"timeout after {patience_s:.0f} s of waiting until {description}; at {self.progress()}:\n{self.describe()}"
            )
            if turn % 10 == 0:
                self.master.note()
            time.sleep(0.05)
        raise AssertionError("unreachable")


def _progress(manifest: Manifest) -> Progress:
    records = 0
    for source in manifest.sources.values():
        for split in source.splits:
            start = split.properties["start"]
            position = start if split.position is None else split.position
            records += (split.properties["end"] if split.finished else position) - start
    return Progress(manifest.leader_epoch, manifest.checkpoint_id, records)
