"""A real schema registry on this machine, for tests and development: Apicurio's, which speaks the REST API of Confluent's.

It comes as an archive of jars (``mavenjars``), keeps its schemas in an H2 database and is up in some ten seconds. What it
does other than Confluent's: subjects have no rule of compatibility until they are given one, and two texts are the same
schema only if they are equal, unless a request says ``normalize=true``.

    with RegistryServer(tmp_path) as server:
        schemas = SchemaRegistry(server.url)

From a shell: ``python tools/registryserver.py start|stop|status --state-dir DIR``.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Self

if not __package__:  # run as a script: the package is beside this file's directory
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import httpx

from tools.errors import Unsupported
from tools.gobuild import file_lock
from tools.mavenjars import MavenJars
from tools.servercommand import ServerCommand
from tools.serverprocess import HOST, ServerProcess, free_port

JARS = MavenJars(Path(__file__).resolve().parent / "registryserver", "copy")
READY_TIMEOUT = 120.0
"""Seconds; it needs eight on an idle machine."""
USER = "me"
"""Of a server that asks for a password."""
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+PerfDisableSharedMem")


def program() -> Path:
    """The folder that the archive comes to; unpacked if it was not before.

    Raises ``BuildFailed`` when it cannot be fetched.
    """
    (archive,) = JARS.ensure().glob("*.tar.gz")
    target = archive.parent.with_suffix(".unpacked")
    with file_lock(target.with_suffix(".lock")):
        if not target.exists():
            with tempfile.TemporaryDirectory(prefix=".unpack-", dir=target.parent) as scratch:
                with tarfile.open(archive) as packed:
                    packed.extractall(Path(scratch) / "all", filter="data")
                (Path(scratch) / "all").rename(target)
    return target


class RegistryServer(ServerProcess):
    """Keeps its schemas over ``kill`` and another ``start``.

    ``password``: what it asks the user ``me`` for; empty: it asks for none.
    """

    title = "the schema registry"

    def __init__(self, root: Path, password: str = "") -> None:
        super().__init__(root)
        self.password = password

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/apis/ccompat/v7"

    def start(self) -> Self:
        (jar,) = program().glob("*-runner.jar")
        java = shutil.which("java")
        if java is None:
            raise Unsupported("there is no java on the PATH", remedy="install a Java 17")
        self.root.mkdir(parents=True, exist_ok=True)
        self.port = self.port or free_port()
        settings = [f"-D{name}={value}" for name, value in self._settings().items()]
        self._run([java, *_JVM, *settings, "-jar", str(jar)], self._answers, READY_TIMEOUT)
        return self

    def _settings(self) -> dict[str, str]:
        settings = {
            "quarkus.http.host": HOST,
            "quarkus.http.port": str(self.port),
            "quarkus.http.access-log.enabled": "false",
            "apicurio.datasource.url": f"jdbc:h2:file:{self.root}/registry;WRITE_DELAY=0",
            "apicurio.datasource.jdbc.initial-size": "2",
            "apicurio.datasource.jdbc.min-size": "2",
        }
        if self.password:
            settings |= {
                "quarkus.http.auth.basic": "true",
                "quarkus.http.auth.permission.all.paths": "/apis/*",
                "quarkus.http.auth.permission.all.policy": "authenticated",
                "quarkus.security.users.embedded.plain-text": "true",
                f"quarkus.security.users.embedded.users.{USER}": self.password,
                f"quarkus.security.users.embedded.roles.{USER}": "sr-admin",
            }
        return settings

    def client(self) -> httpx.Client:
        """For what tests ask of it themselves."""
        return httpx.Client(base_url=self.url, auth=(USER, self.password) if self.password else None, timeout=30)

    def set_compatibility(self, subject: str, level: str = "BACKWARD") -> None:
        """The rule by which it looks at new versions. The subject must have a schema."""
        with self.client() as client:
            client.put(f"/config/{subject}", json={"compatibility": level}).raise_for_status()

    def versions(self, subject: str) -> list[str]:
        """The schemas of a subject, the oldest first."""
        with self.client() as client:
            numbers = client.get(f"/subjects/{subject}/versions").raise_for_status().json()
            return [client.get(f"/subjects/{subject}/versions/{number}").json()["schema"] for number in numbers]

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return client.get("/subjects").is_success
        except httpx.TransportError:
            return False


def _start(options: argparse.Namespace) -> tuple[dict[str, str], Iterable[subprocess.Popen[bytes]]]:
    server = RegistryServer(options.state_dir).start()
    assert server.process is not None
    return {"SCHEMA_REGISTRY_URL": server.url}, [server.process]


if __name__ == "__main__":
    sys.exit(ServerCommand("registryserver", "A real schema registry for development.", _start).run())
