from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.errors import StorageError
from penstock.jobmanager.process.election.claims import Holder
from penstock.jobmanager.process.election.elector import Elector, Role
from tests.unit.jobmanager.process.election.simulation import TIMES, Access, Register, World

PLACES = st.integers(0, 1)
FAULTS = st.one_of(
    st.tuples(st.just("kill"), PLACES, st.just(0.0)),
    st.tuples(st.just("kill noticed by the link"), PLACES, st.just(0.0)),
    st.tuples(st.just("pause"), PLACES, st.floats(0.1, 100.0)),
    st.tuples(st.just("cut"), PLACES, st.just(0.0)),
    st.tuples(st.just("heal"), PLACES, st.just(0.0)),
    st.tuples(st.just("lose answers"), PLACES, st.just(0.0)),
    st.tuples(st.just("leave"), PLACES, st.just(0.0)),
    st.tuples(st.just("wait"), PLACES, st.floats(0.1, 80.0)),
)


def apply(world: World, fault: str, place: int, seconds: float) -> None:
    process = world.processes[place]
    if fault == "kill":
        world.replace(place)
    elif fault == "kill noticed by the link":
        other = world.processes[1 - place]
        if process.elector.leader is not None and process.leads:
            other.elector.report_death(process.elector.leader.id)
        world.replace(place)
    elif fault == "pause":
        process.paused_until_s = world.now_s + seconds
    elif fault == "cut":
        process.access.is_cut = True
    elif fault == "heal":
        process.access.is_cut = process.access.loses_answers = False
    elif fault == "lose answers":
        process.access.loses_answers = True
    elif fault == "leave":
        try:
            process.elector.release()
        except StorageError:
            pass  # the lease ends by itself
        world.replace(place)
    world.run(seconds)


@settings(max_examples=300, deadline=None)
@given(st.lists(FAULTS, max_size=25))
def test_after_any_faults_exactly_one_process_leads_and_no_term_has_two_leaders(faults: list) -> None:
    world = World()
    for fault, place, seconds in faults:
        apply(world, fault, place, seconds)
        newest = world.register.newest
        for leader in world.leaders:
            assert world.register.leaders[leader.elector.leader.term] == leader.elector.leader.id
            is_superseded = leader.elector.leader.term < newest.term
            can_know = not (leader.is_paused or leader.access.is_cut or leader.access.loses_answers)
            if is_superseded and can_know:
                world.run(2 * TIMES.interval_s)
                assert leader not in world.leaders, "a superseded process that reaches storage still leads"
    for process in world.processes:
        process.access.is_cut = process.access.loses_answers = False
        process.paused_until_s = 0.0
    world.run(TIMES.lease_s + 4 * TIMES.interval_s)
    assert len(world.leaders) == 1
    leader = world.leaders[0]
    world.run(300)
    assert world.leaders == [leader], "a healthy leader was replaced"


def test_a_lease_that_is_not_renewed_is_claimed_after_its_duration_and_not_before() -> None:
    world = World()
    world.run(2)
    leader = world.leaders[0]
    leader.paused_until_s = world.now_s + 1_000
    world.run(TIMES.lease_s - 2 * TIMES.interval_s)
    assert world.leaders == [leader]
    world.run(4 * TIMES.interval_s)
    assert [process for process in world.leaders if process is not leader]


def test_a_reported_death_is_claimed_with_the_next_step() -> None:
    world = World()
    world.run(2)
    place = world.processes.index(world.leaders[0])
    other = world.processes[1 - place]
    other.elector.report_death(world.leaders[0].elector.leader.id)
    other.elector.step()
    assert other.leads


def test_a_reported_death_of_an_earlier_leader_changes_nothing() -> None:
    world = World()
    world.run(2)
    other = next(process for process in world.processes if not process.leads)
    other.elector.report_death("an earlier process")
    other.elector.step()
    assert not other.leads


def test_a_leader_that_leaves_is_replaced_without_a_wait() -> None:
    world = World()
    world.run(2)
    leader = world.leaders[0]
    leader.elector.release()
    other = next(process for process in world.processes if process is not leader)
    other.elector.step()
    assert other.leads
    assert leader.elector.role is Role.LOST


def test_an_outage_shorter_than_the_deadline_does_not_end_the_leader() -> None:
    world = World()
    world.run(2)
    leader = world.leaders[0]
    for process in world.processes:
        process.access.is_cut = True
    world.run(TIMES.deadline_s - 5)
    for process in world.processes:
        process.access.is_cut = False
    world.run(5)
    assert world.leaders == [leader]


def test_a_leader_without_storage_ends_after_the_deadline_so_that_its_workers_are_free() -> None:
    world = World()
    world.run(2)
    leader = world.leaders[0]
    leader.access.is_cut = True
    world.run(TIMES.deadline_s + 5)
    assert leader.elector.role is Role.LOST
    assert "60 s" in leader.elector.reason or "61 s" in leader.elector.reason


def test_a_process_that_was_paused_between_its_observation_and_its_claim_claims_nothing() -> None:
    now = [0.0]

    class Slow(Access):
        def current(self) -> Holder | None:
            found = super().current()
            now[0] += 30  # the process is stopped after the answer
            return found

    elector = Elector(Slow(Register()), Holder("slow"), TIMES, lambda: now[0])
    assert elector.step() is Role.WAITING


def test_a_process_never_leads_twice() -> None:
    world = World()
    world.run(2)
    leader = world.leaders[0].elector
    leader.release()
    for _ in range(5):
        assert leader.step() is Role.LOST


@pytest.mark.parametrize("jump_s", [-3600.0, 3600.0, 86_400.0 * 365])
def test_jumps_of_the_time_of_day_do_not_matter(jump_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    offset = [0.0]
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + offset[0])
    world = World()
    world.run(2)
    leader = world.leaders[0]
    offset[0] = jump_s
    world.run(60)
    assert world.leaders == [leader]
