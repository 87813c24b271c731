"""The manifests that count after leaders followed each other, raced or stalled."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.leadership.lineage import Base, ManifestId, history, needed_bases, next_checkpoint_id


def ids(*pairs: tuple[int, int]) -> list[ManifestId]:
    return [ManifestId(epoch, number) for epoch, number in pairs]


def test_all_manifests_count_without_bases() -> None:
    found = history(ids((1, 1), (1, 2)), {})
    assert found.manifests == ids((1, 2), (1, 1))
    assert found.newest == ManifestId(1, 2)


def test_a_late_manifest_of_a_superseded_leader_is_void() -> None:
    bases = {1: Base(1, 1), 2: Base(2, 7, ManifestId(1, 6))}
    found = history(ids((1, 5), (1, 6), (1, 7), (2, 8)), bases)
    assert found.manifests == ids((2, 8), (1, 6), (1, 5))
    assert found.void == ids((1, 7))


def test_a_late_manifest_is_void_also_before_its_successor_stores_one() -> None:
    bases = {1: Base(1, 1), 2: Base(2, 7, ManifestId(1, 6))}
    assert history(ids((1, 6), (1, 9)), bases).newest == ManifestId(1, 6)


def test_a_manifest_stored_before_the_successor_listed_counts() -> None:
    bases = {1: Base(1, 1), 2: Base(2, 8, ManifestId(1, 7))}
    assert history(ids((1, 6), (1, 7)), bases).manifests == ids((1, 7), (1, 6))


def test_the_higher_of_two_successors_decides() -> None:
    """Leader 2 lists before manifest 7 arrives, leader 3 after it.

    Leader 2 finds the claim of leader 3 and never acts.
    """
    bases = {1: Base(1, 1), 2: Base(2, 7, ManifestId(1, 6)), 3: Base(3, 8, ManifestId(1, 7))}
    assert history(ids((1, 6), (1, 7)), bases).newest == ManifestId(1, 7)


def test_a_manual_return_to_an_older_checkpoint_voids_the_later_ones() -> None:
    bases = {1: Base(1, 1), 2: Base(2, 9, ManifestId(1, 5))}
    found = history(ids((1, 5), (1, 7), (1, 8)), bases)
    assert found.newest == ManifestId(1, 5)
    assert found.void == ids((1, 7), (1, 8))


def test_a_start_from_a_savepoint_voids_all_former_checkpoints() -> None:
    bases = {1: Base(1, 1), 2: Base(2, 9, path="s3://b/savepoint-5f1a2b-0123456789ab")}
    found = history(ids((1, 7), (2, 9)), bases)
    assert found.manifests == ids((2, 9))
    assert history(ids((1, 7)), bases).newest is None


def test_the_chain_continues_where_old_bases_were_removed() -> None:
    bases = {7: Base(7, 20, ManifestId(6, 19))}
    assert history(ids((5, 10), (6, 18), (6, 19), (7, 21)), bases).manifests == ids((7, 21), (6, 19), (6, 18))


def test_the_same_number_of_two_leaders_is_two_manifests() -> None:
    bases = {1: Base(1, 1), 2: Base(2, 2, ManifestId(1, 1))}
    assert history(ids((1, 1), (2, 2)), bases).newest == ManifestId(2, 2)
    assert history(ids((1, 1), (1, 2)), bases).void == ids((1, 2))


def test_bases_are_kept_for_retained_manifests() -> None:
    bases = {epoch: Base(epoch, epoch * 10, ManifestId(epoch - 1, epoch * 10 - 1)) for epoch in range(2, 7)}
    assert needed_bases(ids((4, 40), (5, 55)), bases) == {4, 5, 6}
    assert needed_bases([], {}) == set()


def test_numbers_continue_when_every_manifest_is_deleted() -> None:
    assert next_checkpoint_id([], {3: Base(3, 41)}) == 42


@given(st.data())
def test_successive_leaders_keep_the_checkpoints_that_each_acted_on(data: st.DataObject) -> None:
    """Leaders store some checkpoints and stall with one put in flight, which arrives at any later time."""
    bases: dict[int, Base] = {}
    stored: list[ManifestId] = []
    acted_on: list[ManifestId] = []
    under_way: list[ManifestId] = []
    next_id = 1
    for epoch in range(1, data.draw(st.integers(1, 5)) + 1):
        landed = [m for m in under_way if data.draw(st.booleans())]
        stored += landed
        under_way = [m for m in under_way if m not in landed]
        found = history(stored, bases)
        next_id = next_checkpoint_id([m.checkpoint_id for m in stored], bases)
        bases[epoch] = Base(epoch, next_id, found.newest)
        for _ in range(data.draw(st.integers(0, 3))):
            if not any(m.checkpoint_id == next_id for m in stored):
                stored.append(ManifestId(epoch, next_id))
                acted_on.append(ManifestId(epoch, next_id))
            next_id += 1
        under_way.append(ManifestId(epoch, next_id))
    stored += [m for m in under_way if data.draw(st.booleans())]
    found = history(stored, bases)
    assert set(acted_on) <= set(found.manifests)
    if acted_on:
        assert found.newest is not None
        newest_base = bases[max(bases)]
        late_of_last = found.newest.leader_epoch == newest_base.epoch
        assert found.newest == acted_on[-1] or late_of_last or found.newest == newest_base.checkpoint
    order = sorted(found.manifests, reverse=True)
    assert found.manifests == order
