"""Jobs from topic to topic with a schema registry lose and repeat nothing.

The schema has other versions, and the registry is killed or paused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import SinkError, SourceError
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.formats import registry as registry_module
from penstock.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from penstock.datastream.formats.avro import (
    AvroSchema,
    ConfluentRegistryAvroDeserializationSchema,
    ConfluentRegistryAvroSerializationSchema,
)
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.jobmanager.job.requests import Operation
from tests.in_process import environment, started, until
from tests.integration.kafka.support import fill, new_name, read, topic
from tests.integration.registry.schemas import FIRST, OTHER, SECOND, by_hand
from tools.servers.kafka import KafkaServer
from tools.servers.registry import RegistryServer

pytestmark = [pytest.mark.registry, pytest.mark.kafka]
RESTARTS = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "50 ms", "restart-strategy.fixed-delay.attempts": "1000"}  # fmt: skip


class Topics:
    """A topic to read, a topic to write, and a job between them."""

    def __init__(self, kafka: KafkaServer, server: RegistryServer) -> None:
        self.servers = kafka.bootstrap_servers
        self.reads, self.writes = topic(kafka, prefix="in"), topic(kafka, prefix="out")
        self.server = server
        self.written = 0

    def job(self, folder: Path, writes: AvroSchema = FIRST) -> StreamExecutionEnvironment:
        env = environment(folder, **RESTARTS)
        source = KafkaSource.builder().set_bootstrap_servers(self.servers).set_topics(self.reads)
        source = source.set_value_only_deserializer(
            ConfluentRegistryAvroDeserializationSchema.for_generic(FIRST, self.server.url)
        )
        value = ConfluentRegistryAvroSerializationSchema.for_generic(f"{self.writes}-value", writes, self.server.url)
        serializer = KafkaRecordSerializationSchema.builder().set_topic(self.writes)
        sink = KafkaSink.builder().set_bootstrap_servers(self.servers)
        sink = sink.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).set_transactional_id_prefix(new_name("p"))
        sink = sink.set_record_serializer(serializer.set_value_serialization_schema(value).build())
        stream = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "in").uid("in")
        stream.map(lambda reading: {**reading, "n": reading["n"] * 2}).sink_to(sink.build()).uid("out")
        return env

    def put(self, schema: AvroSchema, count: int = 100) -> None:
        """Write records of a version, which registers the version."""
        more: dict[str, Any] = {"tags": ["x"], "raw": b""} if schema is SECOND else {}
        values = [{"id": str(n), "n": n, **more} for n in range(self.written, self.written + count)]
        fill(self.servers, self.reads, by_hand(self.server, f"{self.reads}-value", schema, *values))
        self.written += count

    @property
    def numbers(self) -> list[int]:
        reads = ConfluentRegistryAvroDeserializationSchema.for_generic(FIRST, self.server.url)
        return [record["n"] for record in reads.deserialize_batch([m.value() for m in read(self.servers, self.writes)])]


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "_TIMEOUT_S", 0.5)
    monkeypatch.setattr(registry_module, "_TRIES", 2)


def test_a_job_converts_records_of_other_versions_to_its_own_version(
    kafka: KafkaServer, registry_server: RegistryServer, tmp_path: Path
) -> None:
    topics = Topics(kafka, registry_server)
    topics.put(FIRST)
    master = started(topics.job(tmp_path))
    until(lambda: len(topics.numbers) == 100, master)
    topics.put(SECOND)
    topics.put(FIRST, 50)
    until(lambda: len(topics.numbers) == 250, master)
    master.request(Operation("cancel"))
    master.wait(60)
    assert topics.numbers == [2 * n for n in range(250)]
    assert master.history.restarts == 0
    assert registry_server.versions(f"{topics.writes}-value") == [FIRST.text]


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("harm", ["kill", "pause"])
def test_a_registry_that_is_unavailable_for_a_new_id_loses_and_repeats_nothing(
    kafka: KafkaServer, tmp_path: Path, harm: str
) -> None:
    with RegistryServer(tmp_path / "registry") as server:
        topics = Topics(kafka, server)
        topics.put(FIRST)
        master = started(topics.job(tmp_path))
        until(lambda: len(topics.numbers) == 100, master)
        late = by_hand(
            server,
            f"{topics.reads}-value",
            SECOND,
            *({"id": "", "n": n, "tags": [], "raw": b""} for n in range(100, 200)),
        )
        getattr(server, harm)()
        fill(topics.servers, topics.reads, late)
        until(lambda: master.history.restarts >= 2, master)
        assert any("schema registry" in str(failure) for failure in master.history.failures)
        server.restart() if harm == "kill" else server.resume()
        until(lambda: len(topics.numbers) == 200, master)
        master.request(Operation("cancel"))
        master.wait(60)
        assert topics.numbers == [2 * n for n in range(200)]


@pytest.mark.usefixtures("_impatient")
def test_a_schema_that_the_registry_would_refuse_fails_a_job_before_it_starts(
    kafka: KafkaServer, registry_server: RegistryServer, tmp_path: Path
) -> None:
    topics = Topics(kafka, registry_server)
    by_hand(registry_server, f"{topics.writes}-value", FIRST)
    registry_server.set_compatibility(f"{topics.writes}-value")
    with pytest.raises(SinkError, match=rf"(?s)a schema of '{topics.writes}-value'.*change the schema, or the rules"):
        started(topics.job(tmp_path, OTHER))
    away = RegistryServer(tmp_path / "none")
    away.port = 1
    topics.server = away
    with pytest.raises(SourceError, match="does not answer GET /schemas/types"):
        started(topics.job(tmp_path))
