"""A real schema registry on this machine, for tests and development: Apicurio, which offers the REST API of Confluent's registry.

It comes as an archive of jars (``mavenjars``), keeps its schemas in an H2 database and starts in about ten seconds. It
differs from Confluent's in two points. Subjects have no compatibility rule until a client sets one. Two texts are the same
schema only if they are equal, unless a request has ``normalize=true``.

    with RegistryServer(tmp_path) as server:
        schemas = SchemaRegistry(server.url)

From a shell: ``python -m tools.servers registry start|stop|status --state-dir DIR``.
"""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path

import httpx

from tools.gobuild import file_lock
from tools.mavenjars import MavenJars
from tools.servers.base.process import ServerProcess
from tools.servers.base.programs import java
from tools.servers.base.server import HOST

JARS = MavenJars(Path(__file__).resolve().parent / "artifacts" / "registry", "copy")
USER = "me"
"""The user of a server that requires a password."""


def program() -> Path:
    """Return the folder of the unpacked archive, and unpack the archive if necessary.

    Raises ``BuildFailed`` if the archive cannot be fetched.
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
    """A server that keeps its schemas after ``kill`` and another ``start``.

    ``password`` is the password of the user ``me``. If it is empty, the server requires none.
    """

    title = "The schema registry"
    patience = 120.0
    """Seconds. The server needs eight on an idle machine."""

    def __init__(self, root: Path, password: str = "") -> None:
        super().__init__(root)
        self.password = password

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/apis/ccompat/v7"

    def exports(self) -> dict[str, str]:
        return {"SCHEMA_REGISTRY_URL": self.url}

    def _command(self) -> list[str]:
        (jar,) = program().glob("*-runner.jar")
        settings = [f"-D{name}={value}" for name, value in self._settings().items()]
        return [*java("256m", *settings), "-jar", str(jar)]

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
        """Return an HTTP client for requests of the tests."""
        return httpx.Client(base_url=self.url, auth=(USER, self.password) if self.password else None, timeout=30)

    def set_compatibility(self, subject: str, level: str = "BACKWARD") -> None:
        """Set the rule by which the registry checks new versions. The subject must have a schema."""
        with self.client() as client:
            client.put(f"/config/{subject}", json={"compatibility": level}).raise_for_status()

    def versions(self, subject: str) -> list[str]:
        """Return the schemas of a subject, the oldest first."""
        with self.client() as client:
            numbers = client.get(f"/subjects/{subject}/versions").raise_for_status().json()
            return [client.get(f"/subjects/{subject}/versions/{number}").json()["schema"] for number in numbers]

    def _responds(self) -> bool:
        try:
            with self.client() as client:
                return client.get("/subjects").is_success
        except httpx.TransportError:
            return False
