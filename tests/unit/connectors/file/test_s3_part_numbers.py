"""Part numbers of multipart uploads. S3 accepts 10,000 of them, and a job must not exceed this over any failovers."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from penstock.common.serialization import Encoder
from penstock.connectors.file.sink import s3_store
from penstock.connectors.file.sink.file_sink import FileSink
from penstock.connectors.file.sink.rolling import RollingPolicy
from penstock.connectors.file.sink.s3_store import next_number
from tests.unit.connectors.support import snapshot, writer_context

MIB = 1
"""One "MiB" of the fake. Its smallest part has 5 bytes instead of 5 MiB."""


class Uploads:
    """Fake multipart uploads with S3's rules: all parts but the last have at least 5 MiB, and numbers are 1 to 10,000."""

    def __init__(self) -> None:
        self.parts: dict[str, dict[int, bytes]] = {}
        self.objects: dict[str, bytes] = {}

    def call(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        if method == "create_multipart_upload":
            upload = f"u{len(self.parts)}"
            self.parts[upload] = {}
            return {"UploadId": upload}
        if method == "complete_multipart_upload":
            named = arguments["MultipartUpload"]["Parts"]
            numbers = [part["PartNumber"] for part in named]
            assert numbers == sorted(set(numbers))
            parts = [self.parts[arguments["UploadId"]][number] for number in numbers]
            assert all(len(part) >= 5 * MIB for part in parts[:-1])
            assert [part["ETag"] for part in named] == [str(hash(part)) for part in parts], "InvalidPart"
            self.objects[path] = b"".join(parts)
        return {}

    def size_of(self, path: str) -> int:
        return len(self.objects[path]) if path in self.objects else -1

    def upload_part(self, path: str, upload: str, number: int, data: bytes) -> Future[list[Any]]:
        assert 1 <= number <= 10_000
        self.parts[upload][number] = data
        done: Future[list[Any]] = Future()
        done.set_result([number, str(hash(data))])
        return done


@pytest.fixture
def uploads(monkeypatch: pytest.MonkeyPatch) -> Uploads:
    found = Uploads()
    monkeypatch.setattr(s3_store, "S3Client", lambda options: found)
    monkeypatch.setattr(s3_store, "_PART_BYTES", 5 * MIB)
    return found


def sink() -> FileSink:
    policy = RollingPolicy.default_rolling_policy(
        part_size=1 << 60, rollover_interval=10**12, inactivity_interval=10**12
    )
    return FileSink.for_row_format("s3://b/out", Encoder.simple_string_encoder()).with_rolling_policy(policy).build()


def life(uploads: Uploads, failovers: int, *, checkpoints_between: bool) -> tuple[str, list[int]]:
    """Run a job with many failovers. Return what it wrote and the sizes of the committed objects."""
    target, attempt, written = sink(), 1, 0
    writer = target.create_writer(writer_context(attempt=attempt), [])
    committer = target.create_committer({})
    text = "x" * (5 * MIB)
    writer.write([text], None, 0)
    written += 1
    pieces, state = snapshot(writer, 1)
    for failover in range(failovers):
        attempt += 1
        writer.write(["zombie"], None, 0)
        writer = target.create_writer(writer_context(attempt=attempt), state)
        if checkpoints_between or failover % 20 == 19:
            writer.write([text], None, 0)
            written += 1
            pieces, state = snapshot(writer, failover + 2)
            committer.commit(pieces)
    writer.finish()
    committer.commit(snapshot(writer, failovers + 9)[0])
    assert sum(map(len, uploads.objects.values())) == written * (5 * MIB + 1)
    assert not any(b"zombie" in data for data in uploads.objects.values())
    return text, list(map(len, uploads.objects.values()))


def test_a_part_outlives_hundreds_of_failovers_with_checkpoints_between_them(uploads: Uploads) -> None:
    sizes = life(uploads, 160, checkpoints_between=True)[1]
    assert len(sizes) == 2, "the first part is closed when its numbers are used up, and another part is started"


def test_a_part_outlives_hundreds_of_failovers_without_checkpoints_between_them(uploads: Uploads) -> None:
    life(uploads, 400, checkpoints_between=False)


def test_attempts_that_restore_the_same_checkpoint_write_at_different_numbers() -> None:
    numbers = [next_number(100, failovers) for failovers in range(1, 17)]
    assert len(set(numbers)) == 16
    assert all(later - earlier >= 64 for earlier, later in zip([100, *numbers], numbers, strict=False))


@pytest.mark.parametrize("next", [1, 9_000, 9_935, 9_990, 10_000, 10_400])
@pytest.mark.parametrize("failovers", [1, 16, 1_000])
def test_a_restore_always_leaves_a_number_for_the_rest(next: int, failovers: int) -> None:
    assert 1 <= next_number(next, failovers) <= 10_000


def test_a_part_that_uses_up_all_numbers_is_followed_by_another(
    uploads: Uploads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_store, "_LAST_PART", 40)
    target = sink()
    writer = target.create_writer(writer_context(attempt=1), [])
    records = [f"{n:09}" for n in range(200)]
    for record in records:
        writer.write([record], None, 0)
    writer.write(["y" * 2_000], None, 0)  # one record that needs more part numbers than exist
    writer.finish()
    found = snapshot(writer, 1)[0]
    assert all(len(piece["parts"]) <= 40 for piece in found)
    content = [b"".join(uploads.parts[piece["upload"]][number] for number, _ in piece["parts"]) for piece in found]
    assert sorted(b"".join(content).decode().split()) == sorted([*records, "y" * 2_000])


def test_a_checkpoint_with_used_up_part_numbers_is_restored(uploads: Uploads) -> None:
    """An earlier release stored a next number beyond the last one."""
    target = sink()
    writer = target.create_writer(writer_context(attempt=1), [])
    writer.write(["x" * (5 * MIB), "tail"], None, 0)
    _, state = snapshot(writer, 1)
    part = next(item for item in state if item["type"] == "part")
    part["stream"]["next"] = 10_432
    del part["attempt"]
    again = target.create_writer(writer_context(attempt=22), state)
    again.write(["more"], None, 0)
    again.finish()
    target.create_committer({}).commit(snapshot(again, 2)[0])
    content = b"".join(uploads.objects.values())
    assert sorted(content.split()) == [b"more", b"tail", b"x" * (5 * MIB)]
