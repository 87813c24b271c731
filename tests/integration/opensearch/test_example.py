"""The example works as its page describes, on a real Redis and a real OpenSearch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from penstock.jobmanager.job.requests import Operation
from tests.examples import EXAMPLES, job_of
from tests.in_process import environment, started, until
from tools.servers.opensearch import OpenSearchServer
from tools.servers.redis import RedisServer

pytestmark = pytest.mark.opensearch
EXAMPLE = EXAMPLES / "redis_opensearch"


def test_visits_are_counted_with_their_titles(
    redis_server: RedisServer, opensearch: OpenSearchServer, tmp_path: Path
) -> None:
    opensearch.ask("PUT", "/pages")
    env = environment(tmp_path)
    env.set_parallelism(2)
    job_of("redis_opensearch").build(env, redis_server.url, opensearch.url)
    master = started(env)
    written = {**os.environ, "REDIS_URL": redis_server.url}
    subprocess.run([sys.executable, EXAMPLE / "write_visits.py", "500"], env=written, check=True)

    def counted() -> int:
        return sum(page["visits"] for page in opensearch.documents("pages").values())

    until(lambda: counted() >= 500, master)
    master.request(Operation("cancel"))
    master.wait(30)
    pages = opensearch.documents("pages")
    assert sum(page["visits"] for page in pages.values()) == 500
    assert (pages["p4"]["title"], pages["p4"]["section"]) == ("Page 4", "weather")
    assert (pages["p20"]["title"], pages["p20"]["section"]) == ("p20", "unknown")


def test_the_manifest_starts_the_job_of_the_example() -> None:
    spec = yaml.safe_load((EXAMPLE / "flinkjob.yaml").read_text())["spec"]
    assert (EXAMPLE / spec["job"]["entry"]).exists()
