"""What all tests share: one local cluster per runner for the whole session, one S3 server."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from penstock.jobmanager.job.requests import Operation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobmanager.process.embedded import EmbeddedExecutor
    from tools.cassandraserver import CassandraServer
    from tools.kafkaserver import KafkaServer
    from tools.kinesisserver import KinesisServer
    from tools.mariadbserver import MariaDbServer
    from tools.mongoserver import MongoServer
    from tools.opensearchserver import OpenSearchServer
    from tools.postgresserver import PostgresServer
    from tools.rabbitmqserver import RabbitMQServer
    from tools.redisserver import RedisServer
    from tools.registryserver import RegistryServer
    from tools.s3server import S3Server
    from tools.sqsserver import SqsServer

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Modules and tests stay to the end: what looks for garbage need not go through them each time."""
    gc.collect()
    gc.freeze()


WORKERS = 2
"""Worker processes of the shared cluster, with as many slots as the first job says."""


@pytest.fixture(scope="session", params=["batched", "pipelined"])
def runner(request: pytest.FixtureRequest) -> str:
    """Every test that runs on a cluster runs with both."""
    return str(request.param)


@pytest.fixture(scope="session")
def executor(runner: str) -> Iterator[EmbeddedExecutor]:
    """A cluster of real processes, started by the first job that runs on it and shared by all later ones."""
    from penstock.jobmanager.process.embedded import EmbeddedExecutor

    executor = EmbeddedExecutor()
    executor.provider.least_workers = WORKERS
    executor.session.on_line = None
    yield executor
    executor.stop()


@pytest.fixture(autouse=True)
def _nothing_runs_on(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that failed must not leave its job in the slots of the tests after it."""
    yield
    if "executor" in request.fixturenames and "runner" in request.fixturenames:
        for master in request.getfixturevalue("executor").session.dispatcher.jobs():
            if not master.is_done:
                master.request(Operation("cancel"))
                master.wait(30)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server with a bucket `engine`."""
    from tools.s3server import S3Server

    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        server.create_bucket("engine")
        yield server


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A real Kafka broker; a test makes topics of its own, and whatever kills or pauses has a broker of its own."""
    from tools.kafkaserver import KafkaServer

    with KafkaServer(tmp_path_factory.mktemp("kafka")) as server:
        yield server


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A real Postgres; a test makes tables of its own, and whatever kills or pauses has a server of its own."""
    from tools.postgresserver import PostgresServer

    with PostgresServer(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDbServer]:
    """A real MariaDB; a test makes tables of its own, and whatever kills or pauses has a server of its own."""
    from tools.mariadbserver import MariaDbServer

    with MariaDbServer(tmp_path_factory.mktemp("mariadb")) as server:
        yield server


@pytest.fixture(scope="session")
def cassandra(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CassandraServer]:
    """A real Cassandra that asks for passwords; a test makes tables of its own, and whatever kills or pauses has a server of its own."""
    from tools.cassandraserver import CassandraServer

    with CassandraServer(tmp_path_factory.mktemp("cassandra"), passwords=True) as server:
        yield server


@pytest.fixture(scope="session")
def opensearch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenSearchServer]:
    """A real OpenSearch; a test makes indices of its own, and whatever kills or pauses has a server of its own."""
    from tools.opensearchserver import OpenSearchServer

    with OpenSearchServer(tmp_path_factory.mktemp("opensearch")) as server:
        yield server


@pytest.fixture(scope="session")
def mongodb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MongoServer]:
    """A FerretDB that asks for a password; a test makes collections of its own, and whatever kills or pauses has a server of its own."""
    from tools.mongoserver import MongoServer

    with MongoServer(tmp_path_factory.mktemp("mongodb")) as server:
        yield server


@pytest.fixture(scope="session")
def sqs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqsServer]:
    """A real ElasticMQ; a test makes queues of its own, and whatever stops or pauses has a server of its own."""
    from tools.sqsserver import SqsServer

    with SqsServer(tmp_path_factory.mktemp("sqs")) as server:
        yield server


@pytest.fixture(scope="session")
def kinesis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KinesisServer]:
    """A kinesis-mock; a test makes streams of its own, and whatever pauses has a server of its own."""
    from tools.kinesisserver import KinesisServer

    with KinesisServer(tmp_path_factory.mktemp("kinesis")) as server:
        yield server


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQServer]:
    """A real RabbitMQ; a test makes queues of its own, and whatever kills or pauses has a server of its own."""
    from tools.rabbitmqserver import RabbitMQServer

    with RabbitMQServer(tmp_path_factory.mktemp("rabbitmq")) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A real Redis; a test uses keys of its own, and whatever kills or pauses has a server of its own."""
    from tools.redisserver import RedisServer

    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="session")
def registry_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    """A real schema registry; a test uses subjects of its own, and whatever kills or pauses has a server of its own."""
    from tools.registryserver import RegistryServer

    with RegistryServer(tmp_path_factory.mktemp("registry")) as server:
        yield server
