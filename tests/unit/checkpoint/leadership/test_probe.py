"""The probe distinguishes stores with conditional writes from stores that ignore the condition."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from penstock.checkpoint.files.storage import CheckpointStorage
from penstock.checkpoint.leadership.probe import probe
from penstock.checkpoint.store.faults import Fault
from penstock.checkpoint.store.object_store import PermanentFailure
from penstock.common.errors import ConditionalWritesUnsupported, StorageError
from tests.unit.checkpoint.support import JOB_ID, QUICK, DictStore, faulty_storage, stores_with

if TYPE_CHECKING:
    from pathlib import Path


class IgnoresConditions(DictStore):
    """A store like some S3 clones: it accepts the header and ignores it."""

    def put(self, url: str, content: bytes, *, if_absent: bool = False) -> None:
        super().put(url, content)


class RefusesConditions(DictStore):
    def put(self, url: str, content: bytes, *, if_absent: bool = False) -> None:
        if if_absent:
            raise PermanentFailure(url, "NotImplemented (501) A header you provided implies functionality")
        super().put(url, content)


class ChecksBeforePut(DictStore):
    conditional_puts = False


def storage_on(store: DictStore) -> CheckpointStorage:
    return CheckpointStorage("dict://root", JOB_ID, policy=QUICK, stores=stores_with(store, "dict"))


def test_a_good_store_passes_and_no_object_remains() -> None:
    store = DictStore()
    report = probe(storage_on(store), high_availability=True)
    assert report.conditional_writes
    assert store.objects == {}


def test_a_directory_passes(tmp_path: Path) -> None:
    assert probe(CheckpointStorage(str(tmp_path), JOB_ID), high_availability=True).conditional_writes


@pytest.mark.parametrize(
    ("store", "problem"),
    [
        (IgnoresConditions(), "accepted two conditional puts"),
        (RefusesConditions(), "501"),
        (ChecksBeforePut(), "checks whether an object exists"),
    ],
)
def test_a_store_without_conditional_writes_is_refused_in_ha_mode(store: DictStore, problem: str) -> None:
    with pytest.raises(ConditionalWritesUnsupported) as caught:
        probe(storage_on(store), high_availability=True)
    text = str(caught.value)
    assert problem in text
    assert f"dict://root/{JOB_ID}" in text
    assert "lost or repeated" in text
    assert "If-None-Match" in text
    assert store.objects == {}


@pytest.mark.parametrize("store", [IgnoresConditions(), RefusesConditions(), ChecksBeforePut()])
def test_a_store_without_conditional_writes_is_a_warning_without_ha(
    store: DictStore, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        report = probe(storage_on(store), high_availability=False)
    assert not report.conditional_writes
    assert "only one JobManager" in caplog.text


def test_an_unusable_store_is_a_different_error(tmp_path: Path) -> None:
    storage, faulty = faulty_storage(tmp_path)
    faulty.inject("put", Fault.DENIED, times=5)
    with pytest.raises(StorageError, match="403") as caught:
        probe(storage, high_availability=True)
    assert not isinstance(caught.value, ConditionalWritesUnsupported)


def test_a_lost_answer_does_not_mislead_the_probe(tmp_path: Path) -> None:
    storage, faulty = faulty_storage(tmp_path)
    faulty.inject("put", Fault.TIMEOUT_AFTER, match="conditional", times=2)
    assert probe(storage, high_availability=True).conditional_writes


def test_the_error_of_an_unreachable_store_names_the_url(tmp_path: Path) -> None:
    storage, faulty = faulty_storage(tmp_path)
    faulty.is_away = True
    with pytest.raises(StorageError, match="no answer"):
        probe(storage, high_availability=False)
