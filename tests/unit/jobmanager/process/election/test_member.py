from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from penstock.checkpoint.files.storage import CheckpointStorage
from penstock.common.configuration import Configuration
from penstock.common.errors import ClusterError, StorageError
from penstock.jobmanager.process.election.claims import Holder
from penstock.jobmanager.process.election.elector import ElectionTimes
from penstock.jobmanager.process.election.joining import is_elected, job_id_of, join
from penstock.jobmanager.process.election.member import Member
from penstock.jobmanager.process.election.storage_claims import StorageClaims

TIMES = ElectionTimes(lease_s=3.0, interval_s=0.1)


class Members:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lost: list[str] = []
        self.reasons: list[str] = []
        self.all: list[Member] = []

    def start(self, name: str) -> Member:
        return self.member(name).start(f"http://{name}")

    def member(self, name: str) -> Member:
        def on_loss(reason: str) -> None:
            self.reasons.append(reason)
            self.lost.append(name)

        claims = StorageClaims(CheckpointStorage(f"file://{self.folder}", "c"))
        member = Member(claims, name, "127.0.0.1", TIMES, on_loss=on_loss)
        self.all.append(member)
        return member


@pytest.fixture
def members(tmp_path: Path):
    found = Members(tmp_path)
    yield found
    for member in found.all:
        member.leave()


def test_the_first_member_leads_and_the_second_one_knows_its_address(members: Members) -> None:
    one = members.start("one")
    assert one.wait(20)
    assert one.leader_url() == ""
    one.serve()
    assert one.leader_url() is None
    two = members.start("two")
    deadline = time.monotonic() + 20
    while two.leader_url() != "http://one":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert not two.wait(0.3)


def test_a_member_that_leaves_hands_over_at_once(members: Members) -> None:
    one = members.start("one")
    assert one.wait(20)
    led = threading.Event()
    two = members.start("two")
    two.on_lead = led.set
    one.leave()
    assert two.wait(20)
    assert led.wait(5)
    assert not members.lost


def test_the_loss_of_a_term_is_reported_once(members: Members) -> None:
    one = members.start("one")
    assert one.wait(20)
    assert one.leader is not None
    storage = CheckpointStorage(f"file://{members.folder}", "c")
    assert StorageClaims(storage).claim(Holder("thief", term=one.leader.term + 1), one.leader)
    deadline = time.monotonic() + 20
    while not members.lost:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.5)
    assert members.lost == ["one"]


def test_a_heartbeat_confirms_the_leadership(members: Members) -> None:
    one = members.member("one")
    assert not one.confirm(0.0)
    one.start("http://one")
    assert one.wait(20)
    now = time.monotonic()
    assert one.confirm(20, now)
    assert one.confirm(0.0, now), "this heartbeat is known"


def test_a_member_that_was_frozen_and_superseded_does_not_confirm_that_it_leads(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = members.start("one")
    assert one.wait(20)
    assert one.leader is not None
    storage = CheckpointStorage(f"file://{members.folder}", "c")
    assert StorageClaims(storage).claim(Holder("two", term=one.leader.term + 1), one.leader)
    assert not one.confirm(1.0, time.monotonic())
    assert members.lost == ["one"]


def test_a_member_without_an_answer_of_storage_does_not_confirm_that_it_leads(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = members.start("one")
    assert one.wait(20)

    def fail(*arguments: object) -> bool:
        raise StorageError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(StorageClaims, "renew", fail)
        assert not one.confirm(0.3, time.monotonic())
    assert one.confirm(20, time.monotonic())
    assert not members.lost


def test_a_member_whose_election_fails_ends_and_hands_over(members: Members) -> None:
    """A member without an election thread would lead without heartbeats, beside the next leader."""

    def fail() -> None:
        raise ClusterError("port 7077 is in use")

    one = members.member("one")
    one.on_lead = fail
    one.start("http://one")
    until = time.monotonic() + 20
    while not members.lost:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert members.lost == ["one"]
    assert "port 7077 is in use" in members.reasons[0]
    began = time.monotonic()
    assert members.start("two").wait(20)
    assert time.monotonic() - began < TIMES.lease_s


@pytest.mark.parametrize(
    ("settings", "cluster", "part"),
    [
        ({"high-availability.type": "file"}, "", "no common name"),
        ({"high-availability.type": "file"}, "c", "no folder for the election"),
        (
            {
                "high-availability.type": "file",
                "high-availability.storageDir": "/tmp/x",
                "high-availability.kubernetes.leader-election.retry-period": "4 s",
            },
            "c",
            "at least two heartbeats",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, str], cluster: str, part: str) -> None:
    with pytest.raises(ClusterError, match=part) as caught:
        join(Configuration(settings), cluster, "127.0.0.1")
    assert caught.value.remedy


def test_masters_with_the_same_cluster_id_run_the_same_job() -> None:
    conf = {"high-availability.type": "file", "high-availability.cluster-id": "weather"}
    assert is_elected(Configuration(conf))
    assert job_id_of(Configuration(conf)) == job_id_of(Configuration(conf))
    assert job_id_of(Configuration({**conf, "high-availability.cluster-id": "other"})) != job_id_of(Configuration(conf))
    assert job_id_of(Configuration({"high-availability.cluster-id": "weather"})) is None
