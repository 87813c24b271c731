"""A replay of a recording gets the decisions of the job that was recorded."""

from __future__ import annotations

from penstock.jobmanager.autoscaling.decide import decide
from penstock.jobmanager.autoscaling.recording import record, replay
from tests.unit.jobmanager.autoscaling.simulator import SimulatedJob, Vertex, step


def test_a_replay_repeats_the_decisions_with_their_inputs() -> None:
    vertices = [Vertex("source", 5_000), Vertex("sink", 1_000, external_limit=2_500)]
    job = SimulatedJob(vertices, step(1_800, 6_000), parallelism=3, decide_every_s=5).run(2_700)
    assert job.rescales
    decisions = list(replay(record("orders", {}, job.history), {}))
    by_time = {one.at_ms: one for one in decisions}
    assert len(decisions) == len(job.history.samples)
    assert by_time[job.decisions[-1].at_ms] == job.decisions[-1]
    same = [by_time[one.at_ms] == one for one in job.decisions]
    assert all(same), job.decisions[same.index(False)]
    assert decide(job.settings, job.history) == decisions[-1]
