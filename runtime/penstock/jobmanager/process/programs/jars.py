"""The programs that clients upload to a session and start, for REST (`rest.gateway.Jars`)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from penstock.common.errors import InvalidJob, PenstockError
from penstock.common.logs.log_file import LogPart
from penstock.common.program.bundle import CODE
from penstock.jobmanager.process.programs.limits import check_limits
from penstock.jobmanager.process.programs.messages import ProgramSpec
from penstock.jobmanager.process.programs.programs import ProgramRunner
from penstock.jobmanager.process.programs.store.fetched import fetched_bundle
from penstock.rest import facts

SWEEP_S = 3600.0
"""Interval in seconds in which unused programs are looked for."""
logger = logging.getLogger(__name__)


class SessionJars:
    """Uploaded programs. `rest.gateway.Jars` describes the methods.

    Args:
        retention_s: time in seconds for which a program is kept that is not used.
        now: clock of the uploads, in seconds since the epoch.
    """

    def __init__(self, programs: ProgramRunner, retention_s: float, now: Callable[[], float] = time.time) -> None:
        self._programs = programs
        self._store = programs.store
        self._retention_s, self._now = retention_s, now
        self._started_at = self._swept_at = now()
        self._last_start: dict[str, float] = {}
        """Time of the last start of each program in this session, by id."""

    def upload(self, name: str, content: bytes) -> facts.Jar:
        return self._store.put_bundle(name, content)

    def fetch(self, request: facts.FetchRequest) -> facts.Jar:
        return self._store.put_bundle(f"{request.name}.zip", fetched_bundle(request, self._store.max_unpacked))

    def jars(self) -> list[facts.Jar]:
        return self._store.bundles()

    def delete(self, jar_id: str) -> None:
        name, digest = self._store.find(jar_id)
        with self._programs.registering:
            if jar_id in self._used():
                self._store.hide_bundle(name, digest)
            else:
                self._store.delete_bundle(name, digest)

    def sweep_sometimes(self) -> None:
        """Delete programs that are no longer needed, once an hour. Failures are logged."""
        now = self._now()
        if now - self._swept_at < SWEEP_S:
            return
        self._swept_at, oldest = now, now - self._retention_s

        def expired(jar: facts.Jar) -> bool:
            return max(jar.uploaded / 1000, self._last_start.get(jar.id, self._started_at)) < oldest

        try:
            with self._programs.registering:
                self._store.sweep(self._used(), expired)
        except PenstockError as error:
            logger.warning("unused programs stay in storage for another hour: %s", error)

    def _used(self) -> set[str]:
        return {f"{program.spec.digest}_{program.spec.bundle}" for program in self._programs.programs()}

    def run(self, jar_id: str, request: facts.RunRequest) -> facts.Application:
        self._last_start[jar_id] = self._now()
        return self._programs.run(self._spec(jar_id, request))

    def plan(self, jar_id: str, request: facts.RunRequest) -> dict[str, Any]:
        return self._programs.plan(self._spec(jar_id, request))

    def applications(self) -> list[facts.Application]:
        return self._programs.applications.all()

    def application(self, application_id: str) -> facts.Application:
        return self._programs.applications.one(application_id)

    def cancel_application(self, application_id: str) -> None:
        self._programs.cancel_application(application_id)

    def output(self, job_id: str, start: int, most: int, *, log: bool) -> LogPart:
        output = self._programs.output_of(job_id)
        return (output.log if log else output.stdout).read(start, most)

    def _spec(self, jar_id: str, request: facts.RunRequest) -> ProgramSpec:
        name, digest = self._store.find(jar_id)
        check_limits(self._programs.settings, request.configuration)
        return ProgramSpec(
            id="",
            bundle=name,
            digest=digest,
            entry=request.entry or self._entry(name, digest),
            args=list(request.args),
            parallelism=request.parallelism,
            configuration=dict(request.configuration),
            restore_path=request.savepoint_path,
            allow_non_restored=request.allow_non_restored,
            job_id=request.job_id,
        )

    def _entry(self, name: str, digest: str) -> str:
        """Return the module that starts the program: `__main__.py`, `job.py` or `main.py`, or else the only module or SQL file at the top.

        Raises:
            InvalidJob: the top has no module, or has several modules with other names.
        """
        folder = self._store.folder(name, digest) / CODE
        modules = sorted(path.name for path in folder.glob("*.py")) or sorted(
            path.name for path in folder.glob("*.sql")
        )
        usual = [module for module in ("__main__.py", "job.py", "main.py") if module in modules]
        if len(modules) == 1 or usual:
            return usual[0] if usual else modules[0]
        shown = f"these modules: {', '.join(modules[:10])}" if modules else "no module"
        raise InvalidJob(
            f"{name} has {shown} at its top, so the start of the program is not known",
            remedy="name it, as FILE.py or module:function (`-c`, or `entryClass` in REST)",
        )
