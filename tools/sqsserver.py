"""A real SQS on this machine, for tests and development: ElasticMQ, which speaks Amazon's protocol and keeps its messages on disk.

ElasticMQ comes as jars (``mavenjars``) and is up in some three seconds.

    with SqsServer(tmp_path) as server:
        url = server.create("orders", VisibilityTimeout="5")

From a shell: ``python tools/sqsserver.py start|stop|status --state-dir DIR``.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

if not __package__:  # run as a script: the package is beside this file's directory
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import httpx

from tools.errors import Unsupported
from tools.mavenjars import MavenJars
from tools.servercommand import ServerCommand
from tools.serverprocess import HOST, ServerProcess, free_port

JARS = MavenJars(Path(__file__).resolve().parent / "sqsserver")
READY_TIMEOUT = 120.0
"""Seconds; it needs three on an idle machine."""
REGION = "elasticmq"
KEYS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": REGION}
"""It takes any."""
_CONFIG = """
include classpath("application.conf")
node-address {{ host = "{host}", port = {port} }}
rest-sqs {{ enabled = true, bind-hostname = "{host}", bind-port = {port}, sqs-limits = strict }}
rest-stats {{ enabled = false }}
queues-storage {{ enabled = true, path = "{root}/queues.conf" }}
messages-storage {{ enabled = true, uri = "jdbc:h2:{root}/messages;WRITE_DELAY=0" }}
aws {{ region = {region}, accountId = 000000000000 }}
"""


class SqsServer(ServerProcess):
    """Keeps queues and messages over ``kill`` and another ``start``."""

    title = "ElasticMQ"

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self) -> Self:
        jars = JARS.ensure()
        self.root.mkdir(parents=True, exist_ok=True)
        self.port = self.port or free_port()
        config = self.root / "elasticmq.conf"
        config.write_text(_CONFIG.format(host=HOST, port=self.port, root=self.root, region=REGION))
        java = shutil.which("java")
        if java is None:
            raise Unsupported("there is no java on the PATH", remedy="install a Java 17")
        command = [java, "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dconfig.file={config}"]
        self._run([*command, "-cp", f"{jars}/*", "org.elasticmq.server.Main"], self._answers, READY_TIMEOUT)
        return self

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/?Action=ListQueues", timeout=3).is_success
        except httpx.TransportError:
            return False

    def client(self) -> Any:
        """botocore's, for this server."""
        from botocore.session import get_session

        return get_session().create_client(
            "sqs",
            region_name=REGION,
            endpoint_url=self.url,
            aws_access_key_id="x",
            aws_secret_access_key="x",
        )

    def create(self, name: str, **attributes: str) -> str:
        """The URL of a new queue."""
        return str(self.client().create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])


def _start(options: argparse.Namespace) -> tuple[dict[str, str], Iterable[subprocess.Popen[bytes]]]:
    server = SqsServer(options.state_dir).start()
    assert server.process is not None
    return {"AWS_ENDPOINT_URL_SQS": server.url, **KEYS}, [server.process]


if __name__ == "__main__":
    sys.exit(ServerCommand("sqsserver", "A real SQS for development.", _start).run())
