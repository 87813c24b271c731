"""One secret from which every process of a cluster derives the same key and certificate. No other user can read it."""

from __future__ import annotations

import socket
import ssl
import stat
import threading
from pathlib import Path

import pytest

from penstock.common.config import options
from penstock.common.configuration import Configuration
from penstock.common.errors import ClusterError
from penstock.jobmanager.cluster.credentials import Credentials, derive_tls, new_secret, read_secret
from penstock.jobmanager.cluster.executor.executor_process import Launch, executor_command
from penstock.jobmanager.cluster.slots import MAX_PIPELINED_LEVELS
from penstock.jobmanager.cluster.spark_cluster import SparkCluster
from penstock.jobmanager.cluster.spark_settings import ClusterConfig, spark_settings
from penstock.jobmanager.process import launch
from penstock.jobmanager.process.agreed import spark_secret
from penstock.jobmanager.process.worker import worker_launch
from penstock.taskmanager.local_state.folders import LOCAL_DIR, STATE_DIR

SECRET = "0123456789abcdef" * 4


@pytest.fixture
def credentials(tmp_path: Path) -> Credentials:
    return Credentials.create(SECRET, tmp_path / "private")


class TestFiles:
    def test_other_users_cannot_read_the_files(self, credentials: Credentials) -> None:
        for path in (credentials.private_key, credentials.certificate):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(credentials.private_key.parent.stat().st_mode) == 0o700

    def test_a_symbolic_link_at_the_path_is_not_followed(self, tmp_path: Path) -> None:
        folder = tmp_path / "private"
        folder.mkdir()
        elsewhere = tmp_path / "elsewhere"
        elsewhere.write_text("as it was")
        (folder / "key.pem").symlink_to(elsewhere)
        Credentials.create(SECRET, folder)
        assert elsewhere.read_text() == "as it was"

    def test_every_process_derives_the_same_files(self) -> None:
        assert derive_tls(SECRET) == derive_tls(SECRET)
        assert derive_tls(SECRET)[1] != derive_tls(new_secret())[1]


class TestTls:
    """Connections of Spark's processes with these files, tested with Python's TLS."""

    def handshake(self, server: Credentials, client: Credentials) -> str:
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(server.certificate, server.private_key)
        asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        asking.check_hostname = False
        asking.load_verify_locations(client.certificate)
        here, there = socket.socketpair()

        def serve() -> None:
            try:
                serving.wrap_socket(there, server_side=True).close()
            except OSError:
                there.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with asking.wrap_socket(here) as connection:
                return str(connection.version())
        finally:
            here.close()
            thread.join()

    def test_processes_of_one_cluster_accept_each_other(self, tmp_path: Path, credentials: Credentials) -> None:
        assert self.handshake(credentials, Credentials.create(SECRET, tmp_path / "other")) == "TLSv1.3"

    def test_a_process_with_another_secret_is_rejected(self, tmp_path: Path, credentials: Credentials) -> None:
        with pytest.raises(ssl.SSLCertVerificationError):
            self.handshake(Credentials.create(new_secret(), tmp_path / "other"), credentials)


class TestCommandLines:
    def test_an_executor_has_the_secret_only_in_its_environment(self, credentials: Credentials) -> None:
        mine = {"spark.ssl.rpc.privateKey": "/the/driver's/key", "spark.rpc.askTimeout": "30s"}
        launch = Launch("7", "spark://CoarseGrainedScheduler@10.0.0.9:7078", "app", ["-Dx=y"], "", mine, {"A": "b"})
        command, environment = executor_command(
            launch,
            slots=2,
            host="10.0.0.1",
            work_dir="/w",
            folder="/w/7",
            heap_mb=512,
            credentials=credentials,
            state_dir="/all",
        )
        assert f"-Dspark.ssl.rpc.privateKey={credentials.private_key}" in command
        assert {"-Xmx512m", "-Dx=y", "-Dspark.rpc.askTimeout=30s"} <= set(command)
        assert command[command.index("--cores") + 1] == str(2 * MAX_PIPELINED_LEVELS)
        assert (environment["A"], environment["SPARK_LOCAL_DIRS"]) == ("b", "/w/7")
        assert (environment[LOCAL_DIR], environment[STATE_DIR]) == ("/w/state", "/all")
        assert SECRET not in " ".join(command)
        assert environment["_SPARK_AUTH_SECRET"] == SECRET
        assert "-Dspark.authenticate=true" in command
        assert "-Dspark.ssl.rpc.enabled=true" in command

    def test_a_driver_has_its_settings_in_a_file_that_only_this_user_can_read(self, tmp_path: Path) -> None:
        cluster = SparkCluster(ClusterConfig(secret=SECRET, local_dir=str(tmp_path), extra_conf={"spark.x": "key=ü\n"}))
        environment = cluster._launch_environment(spark_settings(cluster.config, cluster.credentials))
        assert SECRET not in str(environment)
        path = Path(environment["PYSPARK_SUBMIT_ARGS"].split()[1])
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert environment["SPARK_LOCAL_IP"] == "127.0.0.1"


class TestSecrets:
    def test_every_cluster_has_a_separate_secret(self) -> None:
        assert len(ClusterConfig().secret) >= 32
        assert ClusterConfig().secret != ClusterConfig().secret

    def test_settings_of_a_job_do_not_disable_encryption(self, tmp_path: Path) -> None:
        off = {"spark.authenticate": "false", "spark.ssl.rpc.enabled": "false", "spark.authenticate.secret": "mine"}
        off["spark.shuffle.manager.incremental"] = "streaming"
        cluster = SparkCluster(ClusterConfig(local_dir=str(tmp_path), extra_conf=off))
        conf = spark_settings(cluster.config, cluster.credentials)
        assert conf["spark.authenticate"] == conf["spark.ssl.rpc.enabled"] == "true"
        assert conf["spark.authenticate.secret"] != "mine"
        assert conf["spark.shuffle.manager.incremental"] == "penstock.SealedShuffleManager"

    @pytest.mark.parametrize(("content", "reason"), [("", "0 characters"), ("short\n", "5 characters")])
    def test_a_secret_that_can_be_guessed_is_refused(self, tmp_path: Path, content: str, reason: str) -> None:
        path = tmp_path / "secret"
        path.write_text(content)
        with pytest.raises(ClusterError, match=reason) as refused:
            read_secret(str(path))
        assert str(path) in refused.value.message
        assert "random characters" in refused.value.remedy

    def test_the_error_names_a_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(ClusterError, match="cannot be read"):
            read_secret(str(tmp_path / "secret"))

    def test_the_end_of_the_line_is_ignored(self, tmp_path: Path) -> None:
        path = tmp_path / "secret"
        path.write_text(f"{SECRET}\n")
        assert spark_secret(Configuration({options.SPARK_SECRET_FILE.key: str(path)})) == SECRET


class TestDeployed:
    def test_a_master_without_a_secret_is_refused_before_it_listens(self) -> None:
        with pytest.raises(ClusterError, match=r"security.spark.secret-file is not set") as refused:
            launch.run_master(
                entry="job.py",
                args=[],
                restore=None,
                restore_latest=False,
                fresh=True,
                allow_non_restored_state=[],
                job_id=None,
                parallelism=None,
                configuration={},
            )
        assert "openssl rand -hex 32" in refused.value.remedy

    def test_a_worker_without_a_secret_is_refused(self) -> None:
        with pytest.raises(ClusterError, match=r"security.spark.secret-file is not set"):
            worker_launch.run_worker(master="127.0.0.1:7077", slots=1)
