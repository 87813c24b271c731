"""Every port of a cluster's processes refuses access from another network while a job runs.

Every run detects the ports again, so that the test also covers unexpected ports. docs/security.md has the table that these
tests check.
"""

from __future__ import annotations

import ipaddress
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from penstock.jobmanager.cluster.credentials import new_secret
from penstock.jobmanager.cluster.spark_cluster import free_port
from tests.integration.engine.attacker.deployed import Deployed
from tests.integration.engine.attacker.other_network import OtherNetwork, listening
from tests.integration.engine.selfcheck.job import Plan
from tests.integration.engine.selfcheck.main import argument
from tests.integration.engine.selfcheck.masters import Master, wait_for_checkpoint
from tests.integration.engine.selfcheck.output import verify

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PLAN = Plan(per_key=3_000)
"""A plan of at least a minute, because the attacks take time."""
MAX_ANSWER_BYTES = 4_096
"""Maximum bytes of a response: an error of Spark with its stack."""


@pytest.fixture(scope="module")
def other_network() -> Iterator[OtherNetwork]:
    with OtherNetwork() as place:
        yield place


def is_loopback(address: str) -> bool:
    found = ipaddress.ip_address(address)
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback


def test_an_embedded_cluster_is_reachable_only_from_its_machine(
    other_network: OtherNetwork, settings: dict[str, str], output: str, tmp_path: Path
) -> None:
    job_id = uuid.uuid4().hex
    settings["rest.port"] = "0"
    plan = Plan(per_key=600)
    with Master(argument(plan, output, settings, job_id), tmp_path / "job.log") as master:
        wait_for_checkpoint(tmp_path, job_id, 3, master)
        ports = listening([master.process.pid])
        assert len(ports) >= 5, f"driver, blocks, REST, Py4J, executors are missing: {ports}"
        assert {address: who for address, who in ports.items() if not is_loopback(address[0])} == {}
        received = other_network.attack(port for _, port in ports)
        assert {port: answers for port, answers in received.items() if answers is not None} == {}
        assert_no_secret_shows([master.process.pid])
        assert master.wait() == 0, master.describe()
        assert "EpochFailed" not in master.describe()
    verify(plan, output)


def test_a_deployed_cluster_reveals_nothing_to_foreign_clients_and_survives_them(
    other_network: OtherNetwork, settings: dict[str, str], output: str, tmp_path: Path
) -> None:
    job_id = uuid.uuid4().hex
    secret = new_secret()
    (tmp_path / "secret").write_text(secret)
    settings |= {
        "jobmanager.rpc.address": other_network.address,
        "jobmanager.rpc.port": str(free_port()),
        "rest.port": "0",
        "security.spark.secret-file": str(tmp_path / "secret"),
        "restart-strategy.type": "none",
    }
    with Deployed(tmp_path, settings, PLAN, output, job_id) as cluster:
        wait_for_first_checkpoint(tmp_path, job_id, cluster)
        ports = listening(cluster.pids)
        exposed = {port: who for (address, port), who in ports.items() if not is_loopback(address)}
        assert len(exposed) >= 4, f"resource manager, driver, blocks, executors are missing: {ports}"
        everywhere = {port: who for (address, port), who in ports.items() if address in ("0.0.0.0", "::")}
        assert everywhere == {}
        received = other_network.attack({port for _, port in ports})
        for port, answers in received.items():
            who = exposed.get(port, "")
            assert (answers is None) == (not who), f"port {port} of {who or ports}"
            for tried, answer in (answers or {}).items():
                allowed = MAX_ANSWER_BYTES if tried.endswith("TLS") else 64
                assert len(answer) <= allowed, f"port {port} of {who} says to {tried}: {answer[:200]!r}"
                assert secret.encode() not in answer
                assert b"HTTP/" not in answer, f"port {port} of {who} is a web page: {answer[:200]!r}"
        assert_no_secret_shows(cluster.pids, secret)
        assert cluster.processes["master"].wait(300) == 0, cluster.describe()
    verify(PLAN, output)


def wait_for_first_checkpoint(folder: Path, job_id: str, cluster: Deployed) -> None:
    deadline = time.monotonic() + 240
    while not list(folder.glob(f"checkpoints/{job_id}/chk-*/_metadata")):
        assert time.monotonic() < deadline, cluster.describe()
        assert cluster.processes["master"].poll() is None, cluster.describe()
        time.sleep(0.2)


def assert_no_secret_shows(roots: list[int], secret: str = "") -> None:
    """Check that no command line has the secret, because every user can read it, and that the job's functions do not have it."""
    for root in roots:
        for process in (psutil.Process(root), *psutil.Process(root).children(recursive=True)):
            try:
                command, environment = " ".join(process.cmdline()), process.environ()
            except psutil.Error:
                continue
            known = environment.get("_SPARK_AUTH_SECRET", "")
            for value in filter(None, (secret, known)):
                assert value not in command, f"the secret is on the command line of {process.pid}"
            assert "authenticate.secret=" not in command
