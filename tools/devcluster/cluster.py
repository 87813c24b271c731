"""The cluster as tests and the command line use it: start, use, stop.

``up`` returns when the cluster is able to create the pods of a new Deployment. ``down`` can be called at any time, also
after an ``up`` that was killed.
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
    """A client of the cluster ended with an error. ``stderr`` is its error output."""

    code = "kubectl-failed"

    def __init__(self, command: str, stderr: str) -> None:
        super().__init__(
            f"{command} failed: {stderr.strip()}", remedy="read its message, and check that the cluster is up (status)"
        )
        self.stderr = stderr


class Cluster:
    """One development cluster. Its name identifies it, whichever process started it.

    A ``with`` block stops the cluster at its end only if the cluster was down before. A test therefore leaves a developer's
    running cluster alone.
    """

    def __init__(self, name: str = "dev", *, level: Level = "node") -> None:
        self.name = name
        self.level = level
        self.root = plan.state_root(name)
        self._was_up = False

    # ---- life

    def up(self) -> Self:
        """Start the cluster and wait until it accepts work. Do nothing if it is already up at this level.

        Raises:
            Unsupported: the machine cannot host the cluster. The error lists all reasons.
            BuildFailed: the programs cannot be built.
            NotRunning: the cluster does not start. The error has the last lines of the logs.
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
        """Stop the cluster and remove its state. Loaded images stay for the next start."""
        with self._lock():
            lifecycle.stop(self.root)

    def is_up(self) -> bool:
        """Return whether the cluster runs at this level and responds."""
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
        """The addresses and paths of the running cluster. Raises ``NotRunning`` if it is down."""
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
        """The address under which pods reach servers of this machine, such as an S3 server that listens there."""
        return self.plan.host_address

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout: float = 120.0) -> str:
        """Run kubectl as administrator and return its output. Raise ``KubectlFailed`` with its error output.

        ``timeout`` is in seconds.
        """
        return self._client(self.plan.binaries / "kubectl", arguments, stdin, timeout)

    def helm(self, *arguments: str, timeout: float = 600.0) -> str:
        """Run helm as administrator and return its output. Raise ``KubectlFailed`` with its error output."""
        return self._client(binaries.MODULE.ensure(["helm"]) / "helm", arguments, None, timeout)

    def apply(self, manifest: str) -> str:
        """Apply a manifest, one or more YAML or JSON documents."""
        return self.kubectl("apply", "-f", "-", stdin=manifest)

    def load(self, *images: str | Path) -> list[str]:
        """Load images into the cluster, and return their names there. An image is an archive or a name in buildah's store.

        A pod uses them with ``imagePullPolicy: IfNotPresent`` or ``Never``. Raises ``ToolError`` if an image is neither.
        """
        running = self.plan
        if running.level != "node":
            raise ToolError(f"the cluster {self.name!r} has no node", remedy="start it with --level node")
        return [name for image in images for name in store.load(running, image)]

    def images(self) -> list[str]:
        """Return the names of the images in the cluster."""
        return store.names(self.plan)

    def pids(self) -> dict[str, int]:
        """Return the process id of each component, in this machine's pid namespace."""
        names = supervisor.recorded(self.plan)
        process = processes.load(lifecycle.process_file(self.root))
        if process is None:
            return {}
        inner = {processes.innermost_pid(pid): pid for pid in processes.children(process.pid)}
        return {name: inner[pid] for pid, name in sorted(names.items(), key=lambda item: item[1]) if pid in inner}

    def signal(self, component: str, number: signal.Signals) -> None:
        """Send a component a signal. A stopped kubelet is a lost node. A killed API server restarts."""
        try:
            os.kill(self.pids()[component], number)
        except KeyError:
            raise NotRunning(f"{component} is not running", remedy=f"choose one of: {', '.join(self.pids())}") from None

    def node_command(self, *command: str) -> list[str]:
        """Return the command line that runs ``command`` inside the node's namespaces."""
        process = processes.load(lifecycle.process_file(self.root))
        if process is None:
            raise NotRunning(f"the cluster {self.name!r} is down", remedy="python -m tools.devcluster up")
        namespaces = ("--mount", "--pid", "--net", "--uts", "--ipc")
        return ["nsenter", "--target", str(process.pid), *namespaces, "--", *command]

    def environment(self) -> dict[str, str]:
        """Return the environment in which Kubernetes clients use this cluster without a proxy."""
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), "NO_PROXY": "*", "no_proxy": "*"}

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Allow one ``up`` or ``down`` of a cluster at a time. The lock is a file in the parent directory of the state."""
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
