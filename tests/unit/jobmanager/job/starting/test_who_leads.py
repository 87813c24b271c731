"""The check whether this JobManager leads, while a client waits for the answer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from penstock.checkpoint.store.object_store import TransientFailure
from penstock.common.errors import Fenced, StorageError
from penstock.jobmanager.job.checkpoints import JobCheckpoints
from penstock.jobmanager.job.settings import JobSettings

if TYPE_CHECKING:
    from pathlib import Path


def leading(folder: Path) -> JobCheckpoints:
    settings = JobSettings.from_configuration({"execution.checkpointing.dir": f"file://{folder}"})
    made = JobCheckpoints("job", settings)
    made.take_over()
    return made


def test_the_check_does_not_wait_for_an_unavailable_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = leading(tmp_path)
    checkpoints.check_leads()
    store = checkpoints.storage.store

    def away(url: str) -> Any:
        raise TransientFailure(url, "no answer")

    with monkeypatch.context() as patched:
        patched.setattr(store.store, "list_objects", away)
        began = time.monotonic()
        with pytest.raises(StorageError, match="no answer"):
            checkpoints.check_leads()
        assert time.monotonic() - began < 10
    assert store.policy.retry_for > 10
    checkpoints.check_leads()


def test_a_takeover_by_another_is_detected(tmp_path: Path) -> None:
    checkpoints = leading(tmp_path)
    leading(tmp_path)
    with pytest.raises(Fenced):
        checkpoints.check_leads()
