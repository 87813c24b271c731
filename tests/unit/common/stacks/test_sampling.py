"""A process samples its threads and how they spend their time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.common.stacks.sampling import Place, Sample, sample


@contextmanager
def working(name: str, work: object) -> Iterator[None]:
    ended = threading.Event()

    def spins() -> None:
        while not ended.is_set():
            sum(range(1000))

    def waits() -> None:
        ended.wait()

    thread = threading.Thread(target={"spins": spins, "waits": waits}[str(work)], name=name)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def of_thread(samples: list[Sample], name: str) -> list[Sample]:
    return [seen for seen in samples if seen.stack.thread == name]


def test_a_sample_has_every_thread_with_its_line() -> None:
    with working("one", "waits"):
        time.sleep(0.05)
        [seen] = of_thread(sample(), "one")
    assert seen.count == 1
    assert any("working.<locals>.waits:" in frame for frame in seen.stack.frames)


def test_running_and_waiting_threads_are_distinguished() -> None:
    with working("spinning", "spins"), working("waiting", "waits"):
        samples = sample(1.0, 50)
    spinning, waiting = of_thread(samples, "spinning"), of_thread(samples, "waiting")
    on_cpu = sum(seen.count for seen in spinning if seen.stack.on_cpu)
    assert on_cpu > sum(seen.count for seen in spinning) / 2
    assert {seen.stack.on_cpu for seen in waiting} == {False}
    # Each sample sees both threads. A busy machine takes fewer samples than requested.
    assert abs(sum(seen.count for seen in waiting) - sum(seen.count for seen in spinning)) <= 2


def test_sampling_stops_at_the_maximum_time_and_rate() -> None:
    with working("one", "waits"):
        samples = sample(0.2, 100_000)
    assert 1 <= sum(seen.count for seen in of_thread(samples, "one")) <= 41


def test_the_sampling_thread_is_not_sampled() -> None:
    with working("penstock-watchdog", "waits"):
        assert of_thread(sample(), "penstock-watchdog") == []


def test_a_place_is_searched_with_the_outermost_frame_first() -> None:
    with working("one", "waits"):
        time.sleep(0.05)
        [seen] = of_thread(sample(find_place=lambda frames: Place(frames[-1].f_code.co_name)), "one")
    assert seen.stack.place == Place(seen.stack.frames[-1].split(":")[0].rpartition(".")[2])
