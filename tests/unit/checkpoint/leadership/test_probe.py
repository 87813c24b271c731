"""The probe tells stores that keep the promise from those that do not."""

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
    """As some S3 look-alikes do: the header is accepted and not looked at."""

    def put(self, url: str, content: bytes, *, if_absent: bool = False) -> None:
        super().put(url, content)


class RefusesConditions(DictStore):
    def put(self, url: str, content: bytes, *, if_absent: bool = False) -> None:
        if if_absent:
            raise PermanentFailure(url, "NotImplemented (501) A header you provided implies functionality")
        super().put(url, content)


class LooksFirst(DictStore):
    conditional_puts = False


def storage_on(store: DictStore) -> CheckpointStorage:
    return CheckpointStorage("dict://root", JOB_ID, policy=QUICK, stores=stores_with(store, "dict"))


def test_a_good_store_passes_and_nothing_is_left() -> None:
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
        (LooksFirst(), "looks whether an object exists"),
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


@pytest.mark.parametrize("store", [IgnoresConditions(), RefusesConditions(), LooksFirst()])
def test_without_ha_it_is_a_warning(store: DictStore, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        report = probe(storage_on(store), high_availability=False)
    assert not report.conditional_writes
    assert "only one JobManager" in caplog.text


def test_a_store_that_cannot_be_used_is_another_error(tmp_path: Path) -> None:
    storage, faulty = faulty_storage(tmp_path)
    faulty.inject("put", Fault.DENIED, times=5)
    with pytest.raises(StorageError, match="403") as caught:
        probe(storage, high_availability=True)
    assert not isinstance(caught.value, ConditionalWritesUnsupported)


def test_a_lost_answer_does_not_fool_the_probe(tmp_path: Path) -> None:
    storage, faulty = faulty_storage(tmp_path)
    faulty.inject("put", Fault.TIMEOUT_AFTER, match="conditional", times=2)
    assert probe(storage, high_availability=True).conditional_writes


def test_an_unreachable_store_names_the_url(tmp_path: Path) -> None:
    storage, faulty = faulty_storage(tmp_path)
    faulty.is_away = True
    with pytest.raises(StorageError, match="no answer"):
        probe(storage, high_availability=False)
