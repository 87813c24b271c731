"""Positions in the formats of release 0.1.0 decode to the same values today.

The texts have the form in which release 0.1.0 encodes positions and source state. They are not from savepoints. Never
change a text. Add one for each new format.
"""

from __future__ import annotations

import datetime
import json
import uuid
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.connectors.core.source import Split
from penstock.connectors.kinesis.place import Place
from penstock.connectors.kinesis.shards import ShardEnumerator
from penstock.connectors.postgres.cdc.messages import lsn_of
from penstock.connectors.rabbitmq.seen_ids import SeenIds as RabbitMQSeenIds
from penstock.connectors.redis.source import StreamSourceReader
from penstock.connectors.sql.keys import key_of
from penstock.connectors.sqs.seen_ids import SeenIds as SqsSeenIds

SQS = '[[1010.0, "HGYWIkM29dLqHlXHR2jqwA=="], [null, "GxL3DYFaqnfoTLVAzk+SMw=="]]'
RABBITMQ = "HGYWIkM29dLqHlXHR2jqwBsS9w2BWqp36Ey1QM5PkjM="
KINESIS = '{"after": "49590338271490256608559692538361571095921575989136588898", "sub": 2, "read_to": 1700000000000}'
SHARDS = (
    '{"found": ["s/shardId-0", "s/shardId-1"], "finished": {"s/shardId-0": 1700000000000}, '
    '"start_ms": 1699999000000, "first_look": 1699999500000}'
)
REDIS = '{"after": "1700000000000-5", "number": 42, "marks": [["1600000000000-0", 1], ["1700000000000-5", 42]]}'


def test_a_kept_position_in_sqs_has_the_read_ids_and_their_expiry() -> None:
    seen = SqsSeenIds(SQS, kept_s=10.0, retention_s=100.0, now=1_005.0)
    seen.forget(1_009.0)
    assert [seen.add(id) for id in ("first", "second", "third")] == [False, False, True]
    later = SqsSeenIds(SQS, kept_s=10.0, retention_s=100.0, now=1_005.0)
    later.forget(1_011.0)  # the first message was deleted from the queue, the second one was not
    assert [later.add(id) for id in ("first", "second")] == [True, False]


def test_a_kept_position_in_rabbitmq_has_the_read_ids() -> None:
    seen = RabbitMQSeenIds(RABBITMQ, 10.0)
    assert [seen.add(id) for id in ("first", "second", "third")] == [False, False, True]


def test_a_kept_position_in_kinesis_is_unchanged() -> None:
    place = Place.of(json.loads(KINESIS), since=1)
    assert place == ("49590338271490256608559692538361571095921575989136588898", 2, 1_700_000_000_000)


def test_the_kept_state_of_a_kinesis_source_has_its_shards() -> None:
    source: Any = SimpleNamespace(discovery_ms=1_000, start_ms=0)
    enumerator = ShardEnumerator(source)
    enumerator.restore(json.loads(SHARDS))
    assert enumerator._found == {"s/shardId-0", "s/shardId-1"}
    assert enumerator._finished == {"s/shardId-0": 1_700_000_000_000}
    assert (enumerator._start_ms, enumerator._first_look) == (1_699_999_000_000, 1_699_999_500_000)


def test_a_kept_position_in_a_redis_stream_continues_at_the_same_entry() -> None:
    followed = []

    def follow(*arguments: Any) -> Any:
        followed.append(arguments)
        return SimpleNamespace(name="s", marks=arguments[3])

    reader = StreamSourceReader.__new__(StreamSourceReader)
    reader._source = SimpleNamespace(decoder=lambda name: None)  # type: ignore[assignment]
    reader._tail = SimpleNamespace(follow=follow)  # type: ignore[assignment]
    opened = reader.open_split(Split("s", {"after": "0-0", "number": 0, "up_to": None}), json.loads(REDIS))
    assert followed == [("s", ("1700000000000-5", 42), None, [("1600000000000-0", 1), ("1700000000000-5", 42)])]
    assert opened.position == json.loads(REDIS)


def test_a_kept_position_in_the_log_of_postgres_is_unchanged() -> None:
    assert lsn_of("16/B374D848") == 0x16B374D848


@pytest.mark.parametrize(
    ("kept", "key"),
    [
        ("7", 7),
        ('"k"', "k"),
        ('["datetime", "2024-02-29T12:30:00.000005"]', datetime.datetime(2024, 2, 29, 12, 30, 0, 5)),
        ('["date", "2013-07-01"]', datetime.date(2013, 7, 1)),
        ('["decimal", "1.50"]', Decimal("1.50")),
        ('["uuid", "00000000-0000-0000-0000-000000000005"]', uuid.UUID(int=5)),
        ('["bytes", "00ff"]', b"\x00\xff"),
    ],
)
def test_a_kept_position_in_a_table_is_the_same_key(kept: str, key: Any) -> None:
    found = key_of(json.loads(kept))
    assert (type(found), str(found)) == (type(key), str(key))
