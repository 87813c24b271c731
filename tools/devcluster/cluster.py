"""The cluster as tests and the command line see it: up, use, down.

``up`` is done when a Deployment applied at once gets its pods: API server ready, node ready, DNS answering, service
accounts being made. ``down`` may be called at any time, also on the ruins of an ``up`` that was killed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from tools.devcluster import api, binaries, host, nodeconfig, pki, plan, preflight, processes, store, supervisor
from tools.devcluster.plan import Level, Plan, Ports
from tools.errors import NotRunning, ToolError

REPOSITORY = Path(__file__).resolve().parents[2]
START_TIMEOUT = 300.0
"""Seconds for each step of ``up``; an idle machine takes 10 for all, a busy one may take long."""


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
                preflight.check(self.level)
                programs = binaries.ensure(self.level)
                self._down()
                with ExitStack() as undo:
                    undo.callback(self._down)
                    self._start(programs)
                    undo.pop_all()
        return self

    def down(self) -> None:
        """Stop everything and leave nothing behind; the images that were loaded stay for the next time."""
        with self._lock():
            self._down()

    def is_up(self) -> bool:
        """Whether the cluster runs, at this level, and answers."""
        found = plan.load(self.root)
        process = processes.load(self._process_file)
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
        running = self.plan
        process = processes.load(self._process_file)
        wanted = supervisor.recorded(running)
        if process is None:
            return {}
        return {
            wanted[inner]: pid
            for pid in processes.children(process.pid)
            if (inner := processes.innermost_pid(pid)) in wanted
        }

    def signal(self, component: str, number: signal.Signals) -> None:
        """Send a component a signal: a stopped kubelet is a lost node, a killed API server one that restarts."""
        try:
            os.kill(self.pids()[component], number)
        except KeyError:
            raise NotRunning(f"{component} does not run", remedy=f"there are: {', '.join(self.pids())}") from None

    def node_command(self, *command: str) -> list[str]:
        """The command line that runs ``command`` inside the node's namespaces."""
        process = processes.load(self._process_file)
        if process is None:
            raise NotRunning(f"the cluster {self.name!r} is down", remedy="python -m tools.devcluster up")
        namespaces = ("--mount", "--pid", "--net", "--uts", "--ipc")
        return ["nsenter", "--target", str(process.pid), *namespaces, "--", *command]

    # ---- steps

    @property
    def _process_file(self) -> Path:
        return self.root / "process.json"

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """One ``up`` or ``down`` of a cluster at a time; the lock is a file beside the state, which comes and goes."""
        path = self.root.with_suffix(".lock")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with path.open("a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def _start(self, programs: Path) -> None:
        self.root.mkdir(mode=0o700, parents=True)
        images = plan.image_root(self.name)
        planned = Plan(self.name, self.level, self.root, images, programs)
        if self.level == "node":
            images.mkdir(mode=0o711, parents=True, exist_ok=True)
            planned = host.claim(planned)
        else:
            planned = Plan(self.name, self.level, self.root, images, programs, ports=_free_ports())
            planned.save()
        planned.logs.mkdir()
        pki.make_certificates(planned)
        pki.make_kubeconfigs(planned)
        if self.level == "node":
            nodeconfig.write(planned)
            host.make_cgroups(planned)
        self._spawn(planned)
        if self.level == "node":
            self._wait("containerd", lambda: _containerd_answers(planned))
            store.prepare(planned)
            planned.store_ready.touch()
        self._wait("the API server", lambda: api.serves(planned))
        if self.level == "node":
            self._wait("the node", lambda: api.node_is_ready(planned))
            self._wait("DNS", lambda: api.dns_answers(planned))
        self._wait("the default service account", lambda: api.default_account_exists(planned))

    def _spawn(self, planned: Plan) -> None:
        """Start the supervisor, at the node level inside new namespaces, and write down which process it is."""
        command = [sys.executable, "-m", "tools.devcluster.supervisor", str(planned.root)]
        if self.level == "node":
            namespaces = ["--mount", "--pid", "--net", "--uts", "--ipc", "--propagation", "slave"]
            command = ["unshare", *namespaces, "--fork", "--kill-child", "--mount-proc", *command]
        with (planned.logs / "supervisor.log").open("ab") as log:
            outer = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        pid = outer.pid
        if self.level == "node":
            self._wait("the node's first process", lambda: _first_inside(outer.pid) is not None)
            pid = _first_inside(outer.pid) or pid
        processes.save(self._process_file, processes.of(pid))
        if self.level == "node":
            host.make_link(planned, pid)

    def _wait(self, what: str, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while not ready():
            process = processes.load(self._process_file)
            dead = process is not None and not process.alive()
            if dead or time.monotonic() > deadline:
                waited = "its processes ended" if dead else f"it was waited for {START_TIMEOUT:.0f} s"
                raise NotRunning(
                    f"{what} of the cluster {self.name!r} did not come up: {waited}\n{self._last_words()}",
                    remedy="the lines above are the ends of its logs; is the machine short of memory or disk?",
                )
            time.sleep(0.05)

    def _last_words(self) -> str:
        lines: list[str] = []
        for log in sorted((self.root / "log").glob("*.log")):
            end = log.read_text(errors="replace").splitlines()[-8:]
            lines += [f"--- {log.stem}", *end]
        return "\n".join(lines)

    def _down(self) -> None:
        found = plan.load(self.root)
        process = processes.load(self._process_file)
        if process is not None:
            process.end(patience=15.0)
        if found is not None and found.level == "node":
            host.remove_link(found)
            host.remove_cgroups(found)
            store.forget_containers(found)
            host.release(found)
        if self.root.exists():
            shutil.rmtree(self.root)

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

    def environment(self) -> dict[str, str]:
        """The environment in which Kubernetes clients use this cluster, past any proxy."""
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), "NO_PROXY": "*", "no_proxy": "*"}


def _free_ports() -> Ports:
    """Ports nobody listens on; they are held open together so that they differ."""
    with ExitStack() as held:
        numbers = []
        for _ in range(5):
            probe = held.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            numbers.append(probe.getsockname()[1])
    return Ports(*numbers)


def _first_inside(outer: int) -> int | None:
    """The first process of the namespaces that ``unshare`` made, once it is in its network namespace."""
    inside = processes.children(outer)
    if inside and os.readlink(f"/proc/{inside[0]}/ns/net") != os.readlink("/proc/self/ns/net"):
        return inside[0]
    return None


def _containerd_answers(planned: Plan) -> bool:
    if not planned.containerd_socket.exists():
        return False
    try:
        store.ctr(planned, "version")
    except ToolError:
        return False
    return True
