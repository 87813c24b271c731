"""The configuration of a connection, before it is established."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from penstock.common.errors import InvalidJob, SourceError
from penstock.common.serialization import SimpleStringSchema
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.rabbitmq.client import parameters
from penstock.datastream.connectors.rabbitmq import RMQConnectionConfig, RMQSource
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.job_graph_builder import JobGraphBuilder
from penstock.jobmanager.validation.sink_settings import check_borders

BUILDER = RMQConnectionConfig.Builder


def test_a_config_shows_the_host_but_no_credentials() -> None:
    config = BUILDER().set_host("mq").set_port(5673).set_virtual_host("shop").set_password("secret").build()
    assert config.shown == "RabbitMQ mq:5673 shop"
    assert BUILDER().set_uri("amqp://u:secret@mq:1/%2F").build().shown == "RabbitMQ mq:1"
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize("count", [0, 70_000])
def test_an_unlimited_prefetch_count_is_refused(count: int) -> None:
    with pytest.raises(InvalidJob, match=f"prefetch_count={count}"):
        BUILDER().set_prefetch_count(count).build()


def test_a_uri_of_another_service_is_refused_without_its_password() -> None:
    with pytest.raises(InvalidJob, match="is invalid") as error:
        BUILDER().set_uri("http://u:secret@mq/").build()
    assert "secret" not in str(error.value)


def test_a_config_that_is_printed_shows_no_password() -> None:
    assert repr(BUILDER().set_host("mq").set_password("secret").build()) == "RMQConnectionConfig(RabbitMQ mq:5672)"
    assert repr(BUILDER().set_uri("amqp://u:secret@mq/shop").build()) == "RMQConnectionConfig(RabbitMQ mq shop)"


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("amqp://mq", "RabbitMQ mq"),
        ("amqp://mq:5673/", "RabbitMQ mq:5673"),
        ("amqps://u:sec%2Fret@[::1]:1/a%2Fb?heartbeat=3", "RabbitMQ [::1]:1 a%2Fb"),
        ("amqp://u:sec/ret@mq:1/shop", "RabbitMQ mq:1 shop"),
        ("amqp://u:sec#ret@mq", "RabbitMQ mq"),
        ("amqp://u:sec@ret@mq", "RabbitMQ mq"),
        ("amqp://u:secret", "RabbitMQ"),
        ("u:secret", "RabbitMQ"),
        ("amqps://mq/?ssl_options={'password':'an@secret'}", "RabbitMQ"),
    ],
)
def test_a_uri_is_shown_without_its_credentials(uri: str, shown: str) -> None:
    assert RMQConnectionConfig(uri=uri).shown == shown


@pytest.mark.parametrize("mark", "/?#")
def test_a_uri_with_an_unescaped_password_is_refused_and_not_shown(mark: str) -> None:
    with pytest.raises(InvalidJob, match="RabbitMQ mq:1 shop has a '/'") as error:
        BUILDER().set_uri(f"amqp://u:sec{mark}ret@mq:1/shop").build()
    assert "%2F" in error.value.remedy
    assert "sec" not in str(error.value)


def test_a_uri_without_a_password_is_accepted(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("secret")
    config = BUILDER().set_uri("amqp://job@mq:5673/shop").set_password_file(str(secret)).build()
    found = parameters(config, SourceError, "in")
    assert (found.host, found.port, found.virtual_host) == ("mq", 5673, "shop")
    assert (found.credentials.username, found.credentials.password) == ("job", "secret")
    without_file = parameters(RMQConnectionConfig(uri="amqps://job@mq/shop"), SourceError, "in")
    assert (without_file.credentials.username, without_file.credentials.password) == ("job", "")


def test_an_error_about_a_uri_does_not_contain_its_password() -> None:
    for uri in ("amqp://u:secret@mq:port/", "amqp://u:[secret@mq/", "amqp://u:secret"):
        with pytest.raises(InvalidJob, match="is invalid") as error:
            parameters(RMQConnectionConfig(uri=uri), SourceError, "in")
        assert error.value.__suppress_context__
        assert "secret" not in str(error.value)


def test_a_source_without_checkpoints_is_refused_with_the_line_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RMQSource, "validate", lambda _: None)
    env = StreamExecutionEnvironment.get_execution_environment()
    source = RMQSource(BUILDER().build(), "orders", True, SimpleStringSchema())
    env.from_source(source, WatermarkStrategy.no_watermarks(), "in").print()
    graph = JobGraphBuilder(env.get_program().transformations, name="orders", parallelism=1).build()
    check_borders(graph, 1000)
    with pytest.raises(InvalidJob, match="would never acknowledge") as error:
        check_borders(graph, 0)
    assert error.value.operator == "in"
    assert "test_config.py" in error.value.location
