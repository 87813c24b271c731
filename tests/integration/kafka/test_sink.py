"""The transactions of a Kafka sink, and records that it cannot write."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import InvalidJob, RecordFormatError, SinkError
from penstock.common.serialization import SimpleStringSchema
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.core.sink import WriterContext
from penstock.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaRecordSerializationSchema,
    KafkaRecordSerializationSchemaBuilder,
    KafkaSink,
    KafkaSinkBuilder,
)
from tests.in_process import environment, started, until
from tests.integration.kafka.support import eventually, fill, new_name, read, sink, source, topic, values_of
from tools.servers.kafka import KafkaServer

pytestmark = pytest.mark.kafka
JOB, OTHER, UID = "0" * 32, "f" * 32, "uid"


def writer(built: KafkaSink, *, attempt: int = 1, subtask: int = 0, parallelism: int = 1) -> Any:
    return built.create_writer(WriterContext(subtask, parallelism, attempt, UID, JOB), [])


def committer(built: KafkaSink, job: str = JOB) -> Any:
    found = built.create_committer({}, job_id=job, uid=UID)
    assert found is not None
    return found


def numbers(kafka: KafkaServer, name: str, *, committed: bool = True) -> list[int]:
    return [value["n"] for value in values_of(read(kafka.bootstrap_servers, name, committed=committed))]


def test_a_dead_writers_transaction_is_committed_once_although_the_commit_is_repeated(kafka: KafkaServer) -> None:
    name = topic(kafka)
    built = sink(kafka.bootstrap_servers, name).build()
    first = writer(built)
    first.write([{"n": 1}], None, 0)
    committables = first.prepare_commit(1)
    first.close()
    assert numbers(kafka, name) == []
    for _ in range(2):
        another = committer(built)
        another.commit(committables)
        another.commit(committables)
        another.close()
    assert numbers(kafka, name) == [1]


def test_ids_are_reused_after_their_commit_and_a_late_commit_has_no_effect_on_others(kafka: KafkaServer) -> None:
    name = topic(kafka)
    built = sink(kafka.bootstrap_servers, name).build()
    writes, commits = writer(built), committer(built)
    all_of_them, ids = [], set()
    for n in range(6):
        writes.write([{"n": n}], None, 0)
        committables = writes.prepare_commit(n)
        commits.commit(committables)
        writes.notify_committed(n)
        all_of_them += committables
        ids |= {committable["id"] for committable in committables}
    assert len(ids) <= 3
    assert len({(c["id"], c["producer_id"], c["epoch"]) for c in all_of_them}) == 6
    writes.write([{"n": 99}], None, 0)
    writes._producer.flush()
    commits.commit(all_of_them)
    assert numbers(kafka, name) == list(range(6))
    writes.close()


def test_an_id_is_not_reused_before_its_commit_is_reported(kafka: KafkaServer) -> None:
    name = topic(kafka)
    built = sink(kafka.bootstrap_servers, name).build()
    writes = writer(built)
    committables = []
    for n in range(4):
        writes.write([{"n": n}], None, 0)
        committables += writes.prepare_commit(n)
    assert len({committable["id"] for committable in committables}) == 4
    committer(built).commit(committables)
    assert sorted(numbers(kafka, name)) == [0, 1, 2, 3]
    writes.close()


def test_a_checkpoint_without_records_has_no_transaction(kafka: KafkaServer) -> None:
    writes = writer(sink(kafka.bootstrap_servers, topic(kafka)).build())
    writes.write([], None, 0)
    assert writes.prepare_commit(1) == []
    writes.close()


def test_open_transactions_of_wider_attempts_are_aborted_and_their_writers_fenced(kafka: KafkaServer) -> None:
    name = topic(kafka, 2)
    built = sink(kafka.bootstrap_servers, name).build()
    wide = [writer(built, subtask=n, parallelism=3) for n in range(3)]
    for n, each in enumerate(wide):
        each.write([{"n": n}], None, 0)
        each._producer.flush()
    kept = wide[0].prepare_commit(1)
    commits = committer(built)
    commits.discard_unreferenced(kept, 2)
    fill(kafka.bootstrap_servers, name, [{"n": 100}, {"n": 101}], 2)
    commits.commit(kept)
    assert sorted(numbers(kafka, name)) == [0, 100, 101]
    wide[1].write([{"n": 50}], None, 0)
    with pytest.raises(SinkError):
        wide[1].prepare_commit(2)
    assert sorted(numbers(kafka, name)) == [0, 100, 101]
    for each in wide:
        each.close()


def test_pieces_of_a_successor_are_left_alone(kafka: KafkaServer) -> None:
    name = topic(kafka)
    built = sink(kafka.bootstrap_servers, name).build()
    later = writer(built, attempt=5)
    later.write([{"n": 5}], None, 0)
    committables = later.prepare_commit(1)
    commits = committer(built)
    commits.discard_unreferenced([], 5)
    commits.commit(committables)
    assert numbers(kafka, name) == [5]
    later.close()


def test_another_job_with_an_open_transaction_under_the_prefix_is_refused(kafka: KafkaServer) -> None:
    name, prefix = topic(kafka), new_name("shared")
    built = sink(kafka.bootstrap_servers, name, prefix=prefix).build()
    writes = writer(built)
    writes.write([{"n": 1}], None, 0)
    writes._producer.flush()
    with pytest.raises(SinkError, match=r"(?s)another job are open under the prefix.*separate transactional_id_prefix"):
        committer(built, OTHER).discard_unreferenced([], 1)
    follows = sink(kafka.bootstrap_servers, name, prefix=prefix).set_takes_over(True).build()
    committer(follows, OTHER).discard_unreferenced([], 1)
    fill(kafka.bootstrap_servers, name, [{"n": 7}])
    assert numbers(kafka, name) == [7]
    writes.close()


def test_transactions_of_a_longer_prefix_belong_to_another_job(kafka: KafkaServer) -> None:
    name, prefix = topic(kafka), new_name("pay")
    longer = sink(kafka.bootstrap_servers, name, prefix=f"{prefix}-eu").build()
    writes = writer(longer)
    writes.write([{"n": 1}], None, 0)
    committables = writes.prepare_commit(1)
    shorter = sink(kafka.bootstrap_servers, name, prefix=prefix).set_takes_over(True).build()
    committer(shorter, OTHER).discard_unreferenced([], 1)
    committer(longer).commit(committables)
    assert numbers(kafka, name) == [1]
    writes.close()


def test_a_transaction_that_a_disconnected_task_begins_late_is_aborted_at_a_later_commit(
    kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(kafka)
    built = sink(kafka.bootstrap_servers, name).build()
    commits = committer(built)
    commits.discard_unreferenced([], 2)
    zombie = writer(built, attempt=1)
    zombie.write([{"n": 666}], None, 0)
    zombie._producer.flush()
    later = writer(built, attempt=2)
    for n in range(2):
        monkeypatch.setattr("penstock.connectors.kafka.sink.committer.SWEEP_S", 3600.0 * (1 - n))
        later.write([{"n": n}], None, 0)
        commits.commit(later.prepare_commit(n))
        assert numbers_before_open_transactions(kafka, name) == ([] if n == 0 else [0, 1])
    zombie.write([{"n": 667}], None, 0)
    with pytest.raises(SinkError):
        zombie.prepare_commit(1)
    for each in (zombie, later):
        each.close()


def numbers_before_open_transactions(kafka: KafkaServer, name: str) -> list[int]:
    """Return the numbers that a reader gets if it waits at open transactions."""
    deadline = time.monotonic() + 5
    while not (found := numbers(kafka, name)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def test_transactions_are_found_though_a_broker_has_just_died(tmp_path: Path) -> None:
    with KafkaServer(tmp_path, 3) as kafka:
        name = topic(kafka)
        built = sink(kafka.bootstrap_servers, name).build()
        writers = [writer(built, subtask=n, parallelism=8) for n in range(8)]
        for n, each in enumerate(writers):
            each.write([{"n": n}], None, 0)
            each._producer.flush()
            each.close()
        commits = committer(built)
        assert len(commits._client.find("")) >= 8  # the client knows all three brokers
        kafka.kill(2)
        commits.discard_unreferenced([], 2)
        states = commits._client.find(built.prefix)
        assert len(states) >= 8
        assert not [id for id, state in states.items() if state == "Ongoing"]


def test_many_transactions_are_committed_over_one_client(kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from aiokafka.client import AIOKafkaClient

    made: list[Any] = []
    bootstrap = AIOKafkaClient.bootstrap

    async def noted(client: Any) -> None:
        made.append(client)
        await bootstrap(client)

    monkeypatch.setattr(AIOKafkaClient, "bootstrap", noted)
    name = topic(kafka)
    built = sink(kafka.bootstrap_servers, name).build()
    writers = [writer(built, subtask=n, parallelism=8) for n in range(8)]
    committables = []
    for n, each in enumerate(writers):
        each.write([{"n": n}], None, 0)
        committables += each.prepare_commit(1)
    committer(built).commit(committables)
    assert sorted(numbers(kafka, name)) == list(range(8))
    assert len(made) == 1
    for each in writers:
        each.close()


def test_the_error_for_a_timed_out_transaction_contains_the_loss_and_the_remedy(tmp_path: Path) -> None:
    properties = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    with KafkaServer(tmp_path, properties=properties) as kafka:
        name = topic(kafka)
        built = sink(kafka.bootstrap_servers, name).set_property("transaction.timeout.ms", 1_000).build()
        writes = writer(built)
        writes.write([{"n": n} for n in range(17)], None, 0)
        committables = writes.prepare_commit(1)
        time.sleep(4)
        with pytest.raises(
            SinkError, match=r"(?s)aborted by the broker.*1000 ms.*17 records are lost.*older checkpoint"
        ):
            committer(built).commit(committables)
        writes.close()


def test_the_error_for_an_aborted_transaction_says_that_another_client_aborted_it(kafka: KafkaServer) -> None:
    built = sink(kafka.bootstrap_servers, topic(kafka)).build()
    writes = writer(built)
    writes.write([{"n": 1}], None, 0)
    (committable,) = writes.prepare_commit(1)
    commits = committer(built)
    commits._client.end(committable["id"], committable["producer_id"], committable["epoch"], commit=False)
    with pytest.raises(SinkError, match=r"(?s)aborted by another program: its 1 records are lost"):
        commits.commit([committable])
    writes.close()


def test_a_transaction_that_the_cluster_has_forgotten_is_an_error_or_accepted(kafka: KafkaServer) -> None:
    builder = sink(kafka.bootstrap_servers, topic(kafka))
    gone = {"id": new_name("gone"), "producer_id": 1, "epoch": 0, "records": 3, "began_ms": 0, "timeout_ms": 1}
    with pytest.raises(SinkError, match=r"(?s)the cluster no longer knows.*set_unknown_transactions"):
        committer(builder.build()).commit([gone])
    committer(builder.set_unknown_transactions("accept").build()).commit([gone])


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_transaction_version_commits_aborts_and_fences_alike(tmp_path: Path, version: int) -> None:
    with KafkaServer(tmp_path, transaction_version=version) as kafka:
        test_a_dead_writers_transaction_is_committed_once_although_the_commit_is_repeated(kafka)
        test_ids_are_reused_after_their_commit_and_a_late_commit_has_no_effect_on_others(kafka)
        test_open_transactions_of_wider_attempts_are_aborted_and_their_writers_fenced(kafka)
        test_the_error_for_an_aborted_transaction_says_that_another_client_aborted_it(kafka)


def plain(kafka: KafkaServer, schema: KafkaRecordSerializationSchemaBuilder) -> KafkaSinkBuilder:
    builder = KafkaSink.builder().set_bootstrap_servers(kafka.bootstrap_servers).set_record_serializer(schema.build())
    return builder.set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE)


def strings() -> KafkaRecordSerializationSchemaBuilder:
    return KafkaRecordSerializationSchema.builder().set_value_serialization_schema(SimpleStringSchema())


def test_messages_have_the_requested_topic_key_headers_time_and_partition(kafka: KafkaServer) -> None:
    one, two = topic(kafka, 3), topic(kafka, 3)
    schema = strings().set_topic_selector(lambda value: one if value < "b" else two)
    schema = schema.set_key_serialization_schema(lambda value: f"key of {value}")
    schema = schema.set_header_provider(lambda value: {"of": value}).set_partitioner(lambda value: 2)
    writes = writer(plain(kafka, schema.set_timestamp_extractor(lambda value: 12_345)).build())
    writes.write(["a", "b"], None, 0)
    writes.prepare_commit(1)
    for name, value in ((one, b"a"), (two, b"b")):
        (message,) = read(kafka.bootstrap_servers, name)
        found = message.key(), message.value(), message.headers(), message.partition(), message.timestamp()[1]
        assert found == (b"key of " + value, value, [("of", value)], 2, 12_345)
    writes.close()


def test_messages_have_the_event_time_of_their_records(kafka: KafkaServer) -> None:
    name = topic(kafka)
    writes = writer(plain(kafka, strings().set_topic(name)).build())
    writes.write(["a", "b"], [1_000, 2_000], 0)
    writes.write(["c"], None, 0)
    writes.prepare_commit(1)
    times = [message.timestamp()[1] for message in read(kafka.bootstrap_servers, name)]
    assert times[:2] == [1_000, 2_000]
    assert times[2] > 1_600_000_000_000
    writes.close()


def test_more_messages_than_the_queue_holds_wait_and_are_not_lost(kafka: KafkaServer) -> None:
    name = topic(kafka)
    schema = strings().set_topic(name)
    for timestamps in (None, [1_000] * 5_000):
        writes = writer(plain(kafka, schema).set_property("queue.buffering.max.messages", 1_000).build())
        writes.write([str(n) for n in range(5_000)], timestamps, 0)
        writes.prepare_commit(1)
        writes.close()
    values = [int(message.value()) for message in read(kafka.bootstrap_servers, name)]
    assert values == [*range(5_000), *range(5_000)]


def test_the_error_for_a_message_that_is_too_large_contains_its_size(kafka: KafkaServer) -> None:
    name = new_name("small")
    kafka.create_topic(name, 1, max_message_bytes="2000")
    for value in ("x" * 3_000, "x" * 2_000_000):
        writes = writer(plain(kafka, strings().set_topic(name)).set_property("compression.type", "none").build())
        with pytest.raises(SinkError, match=rf"(?s)message of {len(value)} bytes cannot be written.*message.max.bytes"):
            _write_and_flush(writes, value)
        writes.close()


def _write_and_flush(writes: Any, value: str) -> None:
    writes.write([value], None, 0)
    writes.prepare_commit(1)


def test_a_lost_transaction_of_a_snapshot_does_not_count_as_committed_later(tmp_path: Path) -> None:
    properties = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    with KafkaServer(tmp_path, properties=properties) as kafka:
        built = sink(kafka.bootstrap_servers, topic(kafka)).set_property("transaction.timeout.ms", 1_000).build()
        writes = writer(built)
        writes.write([{"n": 1}], None, 0)
        (named,) = writes.prepare_commit(1)
        commits = committer(built)
        eventually(lambda: commits._client.describe(named["id"]).state == "CompleteAbort")
        # These are attempts of the same job from an older checkpoint, whose savepoint can still be restored.
        for attempt in (2, 3):
            commits.discard_unreferenced([named], attempt)
        with pytest.raises(SinkError, match="aborted by the broker"):
            commits.commit([named])
        writes.close()


def test_keys_go_to_the_partitions_that_the_java_client_chooses(kafka: KafkaServer) -> None:
    hashes = {"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536, "abc": 479470107}
    name = topic(kafka, 7)
    schema = strings().set_topic(name).set_key_serialization_schema(lambda value: value)
    writes = writer(plain(kafka, schema).build())
    writes.write(list(hashes), None, 0)
    writes.prepare_commit(1)
    found = {message.key().decode(): message.partition() for message in read(kafka.bootstrap_servers, name)}
    assert found == {key: (value & 0x7FFFFFFF) % 7 for key, value in hashes.items()}
    writes.close()


def test_messages_of_megabytes_are_written_in_transactions_if_the_topic_allows_them(kafka: KafkaServer) -> None:
    name = new_name("large")
    kafka.create_topic(name, 1, max_message_bytes="4000000")
    schema = strings().set_topic(name).build()
    builder = (
        sink(kafka.bootstrap_servers, name).set_record_serializer(schema).set_property("message.max.bytes", 4_000_000)
    )
    built = builder.build()
    writes, commits = writer(built), committer(built)
    values = [f"{n}:" + "x" * n * 1_000_000 for n in (1, 2, 3)]
    writes.write(values * 10, None, 0)
    commits.commit(writes.prepare_commit(1))
    assert [message.value().decode() for message in read(kafka.bootstrap_servers, name)] == values * 10
    writes.close()


def test_a_deleted_topic_fails_the_job_and_the_error_names_it(kafka: KafkaServer, tmp_path: Path) -> None:
    reads, writes = topic(kafka, 1, "in"), topic(kafka, 1, "out")
    env = environment(tmp_path, **{"restart-strategy.type": "none"})
    built = sink(kafka.bootstrap_servers, writes).set_property("topic.metadata.propagation.max.ms", 2_000).build()
    stream = env.from_source(source(kafka.bootstrap_servers, reads).build(), WatermarkStrategy.no_watermarks(), "in")
    stream.sink_to(built)
    master = started(env)
    fill(kafka.bootstrap_servers, reads, [{"n": 1}])
    until(lambda: numbers(kafka, writes) == [1], master)
    kafka.delete_topic(writes)
    fill(kafka.bootstrap_servers, reads, [{"n": 2}])
    eventually(lambda: master.is_done, 60.0, "the job's end")
    assert master.history.status.value == "FAILED"
    assert writes in str(master.error)
    assert "create the topic" in str(master.error)


def test_the_error_for_a_selector_that_returns_no_topic_names_the_record(kafka: KafkaServer) -> None:
    writes = writer(plain(kafka, strings().set_topic_selector(lambda value: "")).build())
    with pytest.raises(RecordFormatError, match="returned '' for lonely"):
        writes.write(["lonely"], None, 0)
    writes.close()


def test_checkpoints_must_fit_the_transactions(kafka: KafkaServer) -> None:
    built = sink(kafka.bootstrap_servers, "any").build()
    built.check_checkpoints(1_000, bounded=False)
    built.check_checkpoints(0, bounded=True)
    with pytest.raises(InvalidJob, match="without checkpoints would never commit"):
        built.check_checkpoints(0, bounded=False)
    with pytest.raises(InvalidJob, match=r"transaction.timeout.ms=600000 is too short for checkpoints every 400000 ms"):
        built.check_checkpoints(400_000, bounded=False)


def test_a_sink_that_cannot_write_is_refused_before_the_job_starts(kafka: KafkaServer) -> None:
    with pytest.raises(SinkError, match=r"(?s)topic 'absent-\w+' cannot be written.*create the topic"):
        sink(kafka.bootstrap_servers, new_name("absent")).build().validate()
    with pytest.raises(SinkError, match=r"(?s)at 127.0.0.1:1: .*bootstrap.servers"):
        sink("127.0.0.1:1", "any").build().validate()
    with pytest.raises(InvalidJob, match=r"(?s)above the brokers' transaction.max.timeout.ms=900000"):
        sink(kafka.bootstrap_servers, topic(kafka)).set_property("transaction.timeout.ms", 3_600_000).build().validate()
    with pytest.raises(InvalidJob, match=r"(?s)needs a valid transactional_id_prefix, got ''"):
        sink("any:1", "any").set_transactional_id_prefix("").build()
    with pytest.raises(InvalidJob, match=r"(?s)transactional.id cannot be set"):
        sink("any:1", "any").set_property("transactional.id", "mine").build()
    sink(kafka.bootstrap_servers, topic(kafka)).build().validate()
