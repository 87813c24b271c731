"""A write-ahead sink records its sent checkpoints on a real S3 server, with the job's object store settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import StorageError
from penstock.connectors.core.write_ahead import GenericWriteAheadSink, ObjectStoreCheckpointCommitter
from tests.unit.connectors.support import snapshot, writer_context
from tools.servers.s3 import S3Server

pytestmark = pytest.mark.s3


class Lists(GenericWriteAheadSink):
    sent: list[int]

    def send_values(self, values: Any, checkpoint_id: int, timestamp: int) -> bool:
        self.sent.append(checkpoint_id)
        return True


def test_another_machine_does_not_send_a_checkpoint_that_s3_records_as_sent(s3: S3Server, tmp_path: Path) -> None:
    s3.create_bucket("notes")
    sink = Lists(ObjectStoreCheckpointCommitter(f"s3://notes/{tmp_path.name}"))
    sink.sent = []
    options = s3.storage_options()
    sink.with_object_store_options(options).validate()
    for checkpoint_id in (1, 2, 2):
        writer = sink.create_writer(writer_context(), [])
        writer.write([checkpoint_id], None, 0)
        pieces, _ = snapshot(writer, checkpoint_id)
        sink.create_committer(options, job_id="job", uid="sink").commit(pieces)
    assert sink.sent == [1, 2]
    nowhere = Lists(ObjectStoreCheckpointCommitter("s3://no-such-bucket/notes")).with_object_store_options(options)
    with pytest.raises(StorageError):
        nowhere.validate()
