"""A real SQS on this machine, for tests and development.

The server is ElasticMQ, which speaks Amazon's protocol and stores its messages on disk. It comes as jars (``mavenjars``) and
starts in about three seconds.

    with SqsServer(tmp_path) as server:
        url = server.create("orders", VisibilityTimeout="5")

From a shell: ``python -m tools.servers sqs start|stop|status --state-dir DIR``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tools.mavenjars import MavenJars
from tools.servers.base.probes import http_succeeds
from tools.servers.base.process import ServerProcess
from tools.servers.base.programs import java
from tools.servers.base.server import HOST

JARS = MavenJars(Path(__file__).resolve().parent / "artifacts" / "sqs")
REGION = "elasticmq"
KEYS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": REGION}
"""The server accepts any keys."""
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
    """A server that keeps queues and messages after ``kill`` and another ``start``."""

    title = "ElasticMQ"
    patience = 120.0
    """Seconds. The server needs three on an idle machine."""

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def exports(self) -> dict[str, str]:
        return {"AWS_ENDPOINT_URL_SQS": self.url, **KEYS}

    def _command(self) -> list[str]:
        config = self.root / "elasticmq.conf"
        config.write_text(_CONFIG.format(host=HOST, port=self.port, root=self.root, region=REGION))
        return [*java("192m", f"-Dconfig.file={config}", "-cp", f"{JARS.ensure()}/*"), "org.elasticmq.server.Main"]

    def _responds(self) -> bool:
        return http_succeeds(self.port, "/?Action=ListQueues")

    def client(self) -> Any:
        return client_to(self.url)

    def create(self, name: str, **attributes: str) -> str:
        """Create a queue and return its URL."""
        return str(self.client().create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])


def client_to(url: str) -> Any:
    """Return a botocore client for the server with this URL."""
    from botocore.session import get_session

    return get_session().create_client(
        "sqs", region_name=REGION, endpoint_url=url, aws_access_key_id="x", aws_secret_access_key="x"
    )
