"""`penstock check` warns if the configured containers are too small for the job."""

from __future__ import annotations

from typing import Any

from penstock.datastream import StreamExecutionEnvironment
from penstock.jobmanager.process import launch

FOUR_SLOTS_IN_A_GIBIBYTE = {"taskmanager.memory.process.size": "1gb", "taskmanager.numberOfTaskSlots": "4"}


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    words = env.from_collection(["a", "b"]).key_by(lambda word: word).map(lambda word: (word, 1))
    words.key_by(lambda pair: pair[0]).reduce(lambda a, b: a).print()
    env.execute("words")


def warnings(**configuration: str) -> list[dict[str, Any]]:
    report = launch.check(
        entry=f"{__name__}:main", args=[], parallelism=None, against=None, configuration=configuration
    )
    assert report["ok"], report
    return list(report["warnings"])


def test_four_slots_in_a_gibibyte_are_warned_about() -> None:
    (warning,) = warnings(**FOUR_SLOTS_IN_A_GIBIBYTE)
    assert warning["code"] == "MEMORY_TIGHT"
    assert "4 slots need 1055Mi" in warning["message"]
    assert "to 1088Mi, or lower taskmanager.numberOfTaskSlots to 3" in warning["remedy"]


def test_a_sufficient_size_is_not_warned_about() -> None:
    assert warnings() == []
    assert warnings(**FOUR_SLOTS_IN_A_GIBIBYTE | {"taskmanager.memory.process.size": "1088mb"}) == []
