"""The ids in the state, and the time until which they are kept."""

from __future__ import annotations

from penstock.connectors.rabbitmq.seen_ids import SeenIds

KEPT_S = 10.0


def read(seen: SeenIds, *ids: str | bytes) -> list[bool]:
    return [seen.add(id) for id in ids]


def test_a_repeated_id_is_not_new_even_after_a_restore() -> None:
    seen = SeenIds("", KEPT_S)
    assert read(seen, "a", "b", "a") == [True, True, False]
    assert read(SeenIds(seen.position, KEPT_S), "b", "c") == [False, True]


def test_an_id_without_an_acknowledgement_is_never_forgotten() -> None:
    seen = SeenIds("", KEPT_S)
    read(seen, "a")
    seen.snapshot(1)
    seen.forget(1e9)
    assert read(seen, "a") == [False]


def test_an_acknowledged_id_is_forgotten_after_its_time() -> None:
    seen = SeenIds("", KEPT_S)
    read(seen, "a")
    seen.snapshot(1)
    read(seen, "b")
    seen.snapshot(2)
    seen.acknowledged(1, 100.0)
    seen.forget(100.0 + KEPT_S)
    assert len(seen) == 2
    seen.forget(100.1 + KEPT_S)
    assert len(seen) == 1
    assert read(seen, "b", "a") == [False, True]


def test_another_connection_restarts_the_time_to_keep_ids() -> None:
    seen = SeenIds("", KEPT_S)
    read(seen, "a")
    seen.snapshot(1)
    seen.acknowledged(1, 100.0)
    seen.connected(105.0)
    seen.forget(112.0)
    assert read(seen, "a") == [False]


def test_restored_ids_are_kept_until_a_connection_has_existed_for_their_time() -> None:
    seen = SeenIds("", KEPT_S)
    read(seen, "a", "b")
    restored = SeenIds(seen.position, KEPT_S)
    restored.forget(1e9)
    assert len(restored) == 2
    restored.connected(100.0)
    restored.forget(111.0)
    assert restored.position == ""


def test_a_repeated_id_is_kept_until_its_repetition_is_acknowledged() -> None:
    seen = SeenIds("", KEPT_S)
    read(seen, "a", "b")
    restored = SeenIds(seen.position, KEPT_S)
    restored.connected(100.0)
    assert read(restored, "a") == [False]
    restored.snapshot(2)
    restored.forget(200.0)
    assert read(restored, "b", "a") == [True, False]


def test_an_id_may_be_bytes() -> None:
    seen = SeenIds("", KEPT_S)
    assert read(seen, b"\xff\xfe", b"\xff\xfe", b"\xff") == [True, False, True]
