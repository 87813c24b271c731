"""The programs that clients upload to a session and start, for REST (`rest.gateway.Jars`)."""

from __future__ import annotations

from typing import Any

from penstock.common.errors import InvalidJob
from penstock.common.logs.log_file import LogPart
from penstock.common.program.bundle import CODE
from penstock.jobmanager.process.programs.limits import check_limits
from penstock.jobmanager.process.programs.messages import ProgramSpec
from penstock.jobmanager.process.programs.programs import ProgramRunner
from penstock.rest import facts
from penstock.rest.errors import Conflict


class SessionJars:
    """Uploaded programs. `rest.gateway.Jars` describes the methods."""

    def __init__(self, programs: ProgramRunner) -> None:
        self._programs = programs
        self._store = programs.store

    def upload(self, name: str, content: bytes) -> facts.Jar:
        return self._store.put_bundle(name, content)

    def jars(self) -> list[facts.Jar]:
        return self._store.bundles()

    def delete(self, jar_id: str) -> None:
        name, digest = self._store.find(jar_id)
        with self._programs.registering:
            users = [program.spec.id for program in self._programs.programs() if program.spec.digest == digest]
            if users:
                raise Conflict(
                    f"program {users[0]} uses {name}, and needs it when it starts again",
                    remedy="cancel its jobs first, or leave the file",
                )
            self._store.delete_bundle(name, digest)

    def run(self, jar_id: str, request: facts.RunRequest) -> facts.Application:
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
        """Return the module that starts the program: `__main__.py`, `job.py` or `main.py`, or else the only module at the top.

        Raises:
            InvalidJob: the top has no module, or has several modules with other names.
        """
        folder = self._store.folder(name, digest) / CODE
        modules = sorted(path.name for path in folder.glob("*.py"))
        usual = [module for module in ("__main__.py", "job.py", "main.py") if module in modules]
        if len(modules) == 1 or usual:
            return usual[0] if usual else modules[0]
        shown = f"these modules: {', '.join(modules[:10])}" if modules else "no module"
        raise InvalidJob(
            f"{name} has {shown} at its top, so the start of the program is not known",
            remedy="name it, as FILE.py or module:function (`-c`, or `entryClass` in REST)",
        )
