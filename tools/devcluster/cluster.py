"""The cluster as tests and the command line see it: up, use, down.

``up`` is done when a Deployment applied at once gets its pods. ``down`` may be called at any time, also on the ruins of
an ``up`` that was killed.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from tools import processes
from tools.devcluster import api, binaries, lifecycle, plan, preflight, store, supervisor
from tools.errors import NotRunning, ToolError

if TYPE_CHECKING:
    import signal
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    from tools.devcluster.plan import Level, Plan


class KubectlFailed(ToolError):
    """A client of the cluster ended with an error; ``stderr`` is what it said."""

    code = "kubectl-failed"

    def __init__(self, command: str, stderr: str) -> None:
        super().__init__(f"{command} failed: {stderr.strip()}", remedy="see what it says; is the cluster up (status)?")
        self.stderr = stderr


class Cluster:
    """One development cluster, found by its name whoever started it.

    As a context manager it is taken down at the end only if it was not up before: a test then leaves a developer's
    running cluster alone.
    """

    def __init__(self, name: str = "dev", *, level: Level = "node") -> None:
        self.name = name
        self.level = level
        self.root = plan.state_root(name)
        self._was_up = False

    # ---- life

    def up(self) -> Self:
        """Start the cluster and wait until it takes work; one that is up already, at this level, is left as it is.

        Raises ``Unsupported`` with all reasons when the machine cannot host it, ``BuildFailed`` when its programs
        cannot be built, ``NotRunning`` with the last lines of the logs when it does not come up.
        """
        with self._lock():
            self._was_up = self.is_up()
            if not self._was_up:
                preflight.check(self.level, self.root)
                programs = binaries.ensure(self.level)
                lifecycle.stop(self.root)
                try:
                    lifecycle.start(self.name, self.level, programs)
                except BaseException:
                    lifecycle.stop(self.root)
                    raise
        return self

    def down(self) -> None:
        """Stop everything and leave nothing behind; the images that were loaded stay for the next time."""
        with self._lock():
            lifecycle.stop(self.root)

    def is_up(self) -> bool:
        """Whether the cluster runs, at this level, and answers."""
        found = plan.load(self.root)
        process = processes.load(lifecycle.process_file(self.root))
        return (
            found is not None
            and found.level == self.level
            and process is not None
            and process.alive()
            and api.serves(found)
        )

    def __enter__(self) -> Self:
        return self.up()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._was_up:
            self.down()

    # ---- use

    @property
    def plan(self) -> Plan:
        """Addresses and places of the running cluster. Raises ``NotRunning`` when it is down."""
        found = plan.load(self.root)
        if found is None:
            raise NotRunning(f"the cluster {self.name!r} is down", remedy="python -m tools.devcluster up")
        return found

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.plan.kubeconfig

    @property
    def host_address(self) -> str:
        """Where pods reach servers of this machine, such as an S3 server, if these listen there."""
        return self.plan.host_address

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout: float = 120.0) -> str:
        """Run kubectl as administrator; return what it printed. Raises ``KubectlFailed`` with what it said.

        ``timeout`` is in seconds.
        """
        return self._client(self.plan.binaries / "kubectl", arguments, stdin, timeout)

    def helm(self, *arguments: str, timeout: float = 600.0) -> str:
        """Run helm as administrator; return what it printed. Raises ``KubectlFailed`` with what it said."""
        return self._client(binaries.MODULE.ensure(["helm"]) / "helm", arguments, None, timeout)

    def apply(self, manifest: str) -> str:
        """Apply a manifest, one or more YAML or JSON documents."""
        return self.kubectl("apply", "-f", "-", stdin=manifest)

    def load(self, *images: str | Path) -> list[str]:
        """Bring images into the cluster, archives or names in buildah's store; return the names they have there.

        A pod uses them with ``imagePullPolicy: IfNotPresent`` or ``Never``. Raises ``ToolError`` for what is neither.
        """
        running = self.plan
        if running.level != "node":
            raise ToolError(f"the cluster {self.name!r} has no node", remedy="start it with --level node")
        return [name for image in images for name in store.load(running, image)]

    def images(self) -> list[str]:
        """The names of the images that the cluster has."""
        return store.names(self.plan)

    def pids(self) -> dict[str, int]:
        """The processes of the components by name, as this machine numbers them."""
        names = supervisor.recorded(self.plan)
        process = processes.load(lifecycle.process_file(self.root))
        if process is None:
            return {}
        inner = {processes.innermost_pid(pid): pid for pid in processes.children(process.pid)}
        return {name: inner[pid] for pid, name in sorted(names.items(), key=lambda item: item[1]) if pid in inner}

    def signal(self, component: str, number: signal.Signals) -> None:
        """Send a component a signal: a stopped kubelet is a lost node, a killed API server one that restarts."""
        try:
            os.kill(self.pids()[component], number)
        except KeyError:
            raise NotRunning(f"{component} does not run", remedy=f"there are: {', '.join(self.pids())}") from None

    def node_command(self, *command: str) -> list[str]:
        """The command line that runs ``command`` inside the node's namespaces."""
        process = processes.load(lifecycle.process_file(self.root))
        if process is None:
            raise NotRunning(f"the cluster {self.name!r} is down", remedy="python -m tools.devcluster up")
        namespaces = ("--mount", "--pid", "--net", "--uts", "--ipc")
        return ["nsenter", "--target", str(process.pid), *namespaces, "--", *command]

    def environment(self) -> dict[str, str]:
        """The environment in which Kubernetes clients use this cluster, past any proxy."""
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), "NO_PROXY": "*", "no_proxy": "*"}

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """One ``up`` or ``down`` of a cluster at a time; the lock is a file beside the state, which comes and goes."""
        path = self.root.with_suffix(".lock")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with path.open("a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def _client(self, program: Path, arguments: tuple[str, ...], stdin: str | None, timeout: float) -> str:
        done = subprocess.run(
            [program, *arguments],
            env=self.environment(),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode:
            raise KubectlFailed(f"{program.name} {' '.join(arguments)}", done.stderr or done.stdout)
        return done.stdout
