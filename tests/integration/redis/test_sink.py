"""The writes of sinks, and a server that is lost, full, a replica, or rejects commands."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from penstock.common.errors import InvalidJob, PlatformError, SinkError
from penstock.connectors.core.sink import Sink, StagedCommittable, WriterContext
from penstock.connectors.redis import committer as committer_module
from penstock.connectors.redis.client import Server
from penstock.connectors.redis.committer import RedisCommitter
from penstock.datastream.connectors.redis import DeliveryGuarantee, RedisSink, RedisStreamSink, RedisStreamSource
from tests.integration.redis.streams import Stream
from tools.servers.redis import RedisServer

pytestmark = pytest.mark.redis
CONTEXT = WriterContext(0, 1, 0, "out", "job")


def fields(number: int) -> dict[str, Any]:
    return {"id": number}


def put(sink: Sink, *values: Any) -> None:
    writer = sink.create_writer(CONTEXT, [])
    try:
        writer.write(list(values), None, 0)
        assert writer.prepare_commit(1) == []
    finally:
        writer.close()


def staged(sink: Sink, checkpoint: int, *values: Any) -> dict[str, Any]:
    """Return a committable as the manifest stores it."""
    import base64

    writer = sink.create_writer(CONTEXT, [])
    writer.write(list(values), None, 0)
    (found,) = writer.prepare_commit(checkpoint)
    assert isinstance(found, StagedCommittable)
    return {**found.about, "content": base64.b64encode(found.content()).decode()}


def committer(sink: Sink) -> RedisCommitter:
    found = sink.create_committer({}, job_id="job", uid="out")
    assert isinstance(found, RedisCommitter)
    return found


@pytest.fixture
def stream(redis_server: RedisServer) -> Stream:
    found = Stream(redis_server)
    with found.client as client:
        client.flushdb()
    return found


def test_each_record_has_its_commands_in_order_and_keys_expire(stream: Stream) -> None:
    def commands(number: int) -> Any:
        if number == 3:
            return None
        return [
            ("SET", "last", number),
            ("hset", "all", f"n{number}", b"\xff"),
            ("ZADD", "ranks", number / 2, f"n{number}"),
        ]

    put(RedisSink(stream.server.url, commands, ttl=60_000, batch_size=2), 1, 2, 3, 4)
    with stream.client as client:
        assert client.get("last") == "4"
        assert client.zrange("ranks", 0, -1, withscores=True) == [("n1", 0.5), ("n2", 1.0), ("n4", 2.0)]
        assert client.hlen("all") == 3
        assert all(0 < client.ttl(key) <= 60 for key in ("last", "all", "ranks"))


@pytest.mark.parametrize(
    "command", [("INCR", "a"), ("LPUSH", "a", 1), ("ZADD", "a", "incr", 1, "b"), ("XADD", "a", "*")]
)
def test_commands_that_are_not_idempotent_are_refused(stream: Stream, command: Any) -> None:
    with pytest.raises(SinkError, match="would count values twice") as caught:
        put(RedisSink(stream.server.url, lambda _: command), 1)
    assert "RedisStreamSink" in str(caught.value.remedy)


@pytest.mark.parametrize("command", ["SET a 1", [["SET", "a", 1]], ("SET",), ("SET", "a", None), ("SET", "a", True)])
def test_the_error_for_an_invalid_command_shows_its_record(stream: Stream, command: Any) -> None:
    with pytest.raises(SinkError, match="created from the record the record"):
        put(RedisSink(stream.server.url, lambda _: command), "the record")


def test_at_least_once_entries_are_added_by_the_checkpoint_and_streams_are_trimmed(stream: Stream) -> None:
    sink = RedisStreamSink(
        stream.server.url, stream.name, fields, guarantee=DeliveryGuarantee.AT_LEAST_ONCE, max_length=500
    )
    put(sink, *range(2_000))
    ids = stream.ids()
    assert 500 <= len(ids) < 1_000
    assert ids[-1] == 1_999


def test_a_checkpoint_is_committed_once_although_the_commit_is_repeated(stream: Stream) -> None:
    sink = RedisStreamSink(stream.server.url, lambda number: f"{stream.name}:{number % 2}", fields, batch_size=10)
    pieces = [staged(sink, 5, *range(35)), staged(sink, 5, *range(35, 50))]
    for _ in range(2):
        committer(sink).commit(pieces)
    later = staged(sink, 9, 50)
    committer(sink).commit([later])
    committer(sink).commit(pieces)
    even, odd = (Stream(stream.server, f"{stream.name}:{number}") for number in (0, 1))
    assert even.ids() == list(range(0, 51, 2))
    assert odd.ids() == list(range(1, 50, 2))


def test_two_committers_at_the_same_time_add_each_entry_once(stream: Stream) -> None:
    sink = RedisStreamSink(stream.server.url, stream.name, fields, batch_size=3)
    pieces = [staged(sink, 1, *range(1_000))]
    threads = [threading.Thread(target=committer(sink).commit, args=(pieces,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [int(of["id"]) for _, of in stream.entries()] == list(range(1_000))


def test_an_answer_that_is_lost_repeats_nothing(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = RedisStreamSink(stream.server.url, stream.name, fields, batch_size=10)
    requests, calls = redis.Redis.eval, 0

    def losing(client: Any, *arguments: Any) -> Any:
        nonlocal calls
        answer = requests(client, *arguments)
        calls += 1
        if calls % 2:
            raise redis.ConnectionError("cut")
        return answer

    monkeypatch.setattr(redis.Redis, "eval", losing)
    committer(sink).commit([staged(sink, 1, *range(55))])
    assert stream.ids() == list(range(55))
    assert calls > 10


def test_restarted_checkpoint_ids_are_an_error_and_do_not_count_as_committed(stream: Stream) -> None:
    sink = RedisStreamSink(stream.server.url, stream.name, fields)
    committer(sink).commit([staged(sink, 1, 1)])
    committer(sink).commit([staged(sink, 3, 3)])
    for checkpoint in (1, 2, 3):
        with pytest.raises(SinkError, match="have restarted"):
            committer(sink).commit([staged(sink, checkpoint, 7)])
    assert stream.ids() == [1, 3]


def test_old_checkpoints_are_distinguished_from_restarted_ids_even_without_their_notes(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer_module, "_KEPT", 3)
    sink = RedisStreamSink(stream.server.url, stream.name, fields)
    pieces = [staged(sink, number, number) for number in range(1, 9)]
    for piece in pieces:
        time.sleep(0.002)
        committer(sink).commit([piece])
    for piece in pieces:  # a restore from an old savepoint commits again
        committer(sink).commit([piece])
    time.sleep(0.002)
    for checkpoint in (1, 5, 6, 8):
        with pytest.raises(SinkError, match="have restarted"):
            committer(sink).commit([staged(sink, checkpoint, 70)])
    committer(sink).commit([staged(sink, 9, 9)])
    assert stream.ids() == list(range(1, 10))


def test_notes_that_disappear_during_a_commit_are_an_error(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = RedisStreamSink(stream.server.url, stream.name, fields, batch_size=10)
    real = redis.Redis.eval
    calls = 0

    def forgetting(self: redis.Redis, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            self.delete(*self.keys(f"{committer_module.NOTES}*"))
        return real(self, *arguments)

    monkeypatch.setattr(redis.Redis, "eval", forgetting)
    with pytest.raises(SinkError, match=r"disappeared while checkpoint 1 was committed\. 20 of its entries are in"):
        committer(sink).commit([staged(sink, 1, *range(55))])
    assert stream.ids() == list(range(20))


def test_a_server_that_may_evict_notes_is_refused(tmp_path: Path) -> None:
    with RedisServer(tmp_path, maxmemory="100mb", maxmemory_policy="allkeys-lru") as server:
        with pytest.raises(SinkError, match="maxmemory-policy is allkeys-lru") as caught:
            RedisStreamSink(server.url, "s", fields).validate()
        assert "noeviction" in caught.value.remedy
        RedisStreamSink(server.url, "s", fields, guarantee=DeliveryGuarantee.AT_LEAST_ONCE).validate()
        with Stream(server).client as client:
            client.config_set("maxmemory-policy", "volatile-lru")
        RedisStreamSink(server.url, "s", fields).validate()


def test_a_key_of_another_type_is_an_error_at_the_start_and_adds_nothing_later(stream: Stream) -> None:
    with stream.client as client:
        client.set("text", "x")
    with pytest.raises(SinkError, match=r"'text' is a string \(WRONGTYPE\)"):
        RedisStreamSink(stream.server.url, "text", fields).validate()
    sink = RedisStreamSink(stream.server.url, lambda number: "text" if number else stream.name, fields)
    pieces = [staged(sink, 1, 0, 1)]
    with pytest.raises(SinkError, match="WRONGTYPE text is a string") as caught:
        committer(sink).commit(pieces)
    assert "another type" in str(caught.value.remedy)
    assert stream.entries() == []
    with stream.client as client:
        client.delete("text")
    committer(sink).commit(pieces)
    assert stream.ids() == [0]
    with stream.client as client:
        client.set("text", "x", keepttl=False)
    with pytest.raises(SinkError, match="HSET text a 1 is refused: WRONGTYPE"):
        put(RedisSink(stream.server.url, lambda _: ("HSET", "text", "a", 1)), 1)


def test_values_by_a_schema_are_the_field_value(stream: Stream) -> None:
    sink = RedisStreamSink(stream.server.url, stream.name, lambda record: {"value": record}, patience=0)
    put_at_least = RedisStreamSink(
        stream.server.url, stream.name, lambda r: {"value": r}, guarantee=DeliveryGuarantee.AT_LEAST_ONCE
    )
    put(put_at_least, "a")
    assert [of for _, of in stream.entries()] == [{"value": "a"}]
    with pytest.raises(SinkError, match="no Redis representation"):
        staged(sink, 1, None)


def test_a_server_that_is_killed_or_paused_for_a_time_loses_no_command(tmp_path: Path) -> None:
    with RedisServer(tmp_path / "redis") as server:
        writer = RedisSink(server.url, lambda number: ("SET", f"k{number}", number)).create_writer(CONTEXT, [])
        for fault in ("kill", "pause"):
            writer.write([f"before {fault}"], None, 0)
            writer.prepare_commit(1)
            writer.write([fault], None, 0)
            server.kill() if fault == "kill" else server.pause()
            mend: Callable[[], None] = server.restart if fault == "kill" else server.resume
            timer = threading.Timer(1.0, mend)
            timer.start()
            writer.prepare_commit(2)
            timer.join()
        writer.close()
        with Stream(server).client as client:
            assert sorted(client.keys()) == ["kbefore kill", "kbefore pause", "kkill", "kpause"]


def test_a_full_server_is_retried_and_then_an_error(tmp_path: Path) -> None:
    with RedisServer(tmp_path / "redis", maxmemory="3mb", maxmemory_policy="noeviction") as server:
        stream = Stream(server)
        sink = RedisSink(server.url, lambda number: ("SET", f"k{number}", "x" * 100_000), patience=500)
        with pytest.raises(SinkError, match="OOM") as caught:
            put(sink, *range(60))
        assert "maxmemory" in str(caught.value.remedy)
        with stream.client as client:
            client.config_set("maxmemory", "1mb")
        exact = RedisStreamSink(server.url, stream.name, fields, patience=500)
        pieces = [staged(exact, 1, 1)]
        with pytest.raises(SinkError, match="OOM"):
            committer(exact).commit(pieces)
        with stream.client as client:
            client.config_set("maxmemory", "100mb")
        committer(exact).commit(pieces)
        assert stream.ids() == [1]


def test_a_replica_is_an_error_at_the_start_and_later(tmp_path: Path, stream: Stream) -> None:
    server = stream.server
    with RedisServer(tmp_path / "replica", replicaof=f"127.0.0.1 {server.port}", masterauth=server.password) as replica:
        with pytest.raises(SinkError, match="is a replica") as caught:
            RedisStreamSink(replica.url, stream.name, fields).validate()
        assert "primary" in str(caught.value.remedy)
        with pytest.raises(SinkError, match="READONLY") as caught:
            put(RedisSink(replica.url, lambda _: ("SET", "a", 1), patience=300), 1)
        assert "primary" in str(caught.value.remedy)


def test_a_server_of_a_cluster_is_an_error(tmp_path: Path) -> None:
    with RedisServer(tmp_path / "redis", cluster_enabled="yes") as server:
        for checked in (RedisSink(server.url, lambda _: None), RedisStreamSource(server.url, "s")):
            with pytest.raises(PlatformError, match="Redis Cluster"):
                checked.validate()


@pytest.mark.parametrize("kind", ["source", "sink", "stream sink"])
def test_the_error_for_an_unreachable_server_or_refused_access_hides_the_password(
    redis_server: RedisServer, tmp_path: Path, kind: str
) -> None:
    def checked(url: str, **options: Any) -> Any:
        if kind == "source":
            return RedisStreamSource(url, "s", may_be_missing=True, **options)
        if kind == "sink":
            return RedisSink(url, lambda _: None, **options)
        return RedisStreamSink(url, "s", fields, **options)

    with pytest.raises(PlatformError, match=r"Redis 127\.0\.0\.1:1: cannot connect") as caught:
        checked("redis://127.0.0.1:1").validate()
    assert "check that the server runs" in str(caught.value.remedy)
    with pytest.raises(PlatformError, match="WRONGPASS") as caught:
        checked(redis_server.url_of("default", "s3cret")).validate()
    assert "password_file" in str(caught.value.remedy)
    assert "s3cret" not in str(caught.value)
    with pytest.raises(InvalidJob, match="is invalid"):
        checked(f"redis://default:s3cret@127.0.0.1:{redis_server.port}/0?socket_timeout=x").validate()
    (tmp_path / "password").write_text(redis_server.password + "\n")
    checked(f"redis://127.0.0.1:{redis_server.port}", password_file=str(tmp_path / "password")).validate()


def test_a_user_without_the_right_is_an_error(stream: Stream) -> None:
    with stream.client as client:
        client.acl_setuser("reader", enabled=True, passwords=["+x"], categories=["+@connection"], commands=["+info"])
    url = stream.server.url_of("reader", "x")
    with pytest.raises(SinkError, match="NOPERM") as caught:
        put(RedisSink(url, lambda _: ("SET", "a", 1)), 1)
    assert "ACL SETUSER" in str(caught.value.remedy)
    sink = RedisStreamSink(url, stream.name, fields)
    began = time.monotonic()
    with pytest.raises(SinkError, match="NOPERM"):
        committer(sink).commit([staged(sink, 1, 1)])
    assert time.monotonic() - began < 5


def test_wrong_options_are_errors(redis_server: RedisServer) -> None:
    url = redis_server.url
    with pytest.raises(InvalidJob):
        RedisStreamSink(url, "s", fields, guarantee=DeliveryGuarantee.NONE)
    with pytest.raises(InvalidJob):
        RedisStreamSink(url, "", fields)
    with pytest.raises(InvalidJob):
        RedisSink(url, lambda _: None, batch_size=0)
    with pytest.raises(InvalidJob, match="without checkpoints"):
        RedisStreamSink(url, "s", fields).check_checkpoints(0, bounded=False)
    assert "s3cret" not in repr(Server("redis://me:s3cret@host:6379/2"))
    assert Server("redis://me:s3cret@host:6379/2").shown == "Redis host:6379/2"
