"""The systems that count readings from topic to topic, each with its strongest guarantee.

Every program takes `--servers --reads --writes --out`, reads the content of the topic at its start, and prints `RESULT`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.comparison import PROGRAMS, RUNTIME
from benchmarks.environments import python_of, site_packages
from tools.mavenjars import MavenJars

JARS = MavenJars(Path(__file__).resolve().parent.parent / "flinkkafka")
EXACTLY, AT_LEAST = "exactly once", "at least once"
COUNTS, UPDATES = "a count per reading", "updates per commit"


@dataclass(frozen=True)
class KafkaSystem:
    """One way to count.

    Attributes:
        peer: name of the virtual environment.
        program: file in `programs/`.
        guarantee: the guarantee for the output topic after crashes.
        output: `COUNTS`: the counts 1 to n of every key, one message each. `UPDATES`: for every key that changed since the last commit,
            the old count with `diff` -1 and the new one with 1. A commit with more readings of a key therefore has fewer messages.
        python: the users of this peer write Python.
    """

    name: str
    peer: str
    program: str
    guarantee: str
    output: str = COUNTS
    arguments: tuple[str, ...] = ()
    python: bool = False

    def command(self, topics: Sequence[str]) -> list[str]:
        """Return the command. Create its environment and fetch the jars of Flink's connector if they are missing."""
        interpreter = sys.executable if self.peer == "penstock" else str(python_of(self.peer))
        jars = ["--jars", str(JARS.ensure())] if self.peer == "flink" else []
        return [interpreter, str(PROGRAMS / self.program), *topics, *jars, *self.arguments]

    def environment(self) -> dict[str, str]:
        if self.peer == "penstock":
            return {"PYTHONPATH": str(RUNTIME)}
        return {"PYTHONPATH": str(site_packages("flink")) if self.peer == "flink" else ""}


_AT_LEAST_ONCE = ("--guarantee", "AT_LEAST_ONCE")
SYSTEMS = (
    KafkaSystem("penstock", "penstock", "penstock_kafka.py", EXACTLY),
    KafkaSystem("penstock-at-least-once", "penstock", "penstock_kafka.py", AT_LEAST, arguments=_AT_LEAST_ONCE),
    KafkaSystem("flink-sql", "flink", "flink/flink_sql_kafka.py", EXACTLY),
    KafkaSystem("pyflink", "flink", "flink/pyflink_kafka.py", EXACTLY, python=True),
    KafkaSystem("bytewax", "bytewax", "libraries/bytewax_kafka.py", AT_LEAST, python=True),
    KafkaSystem("quix", "quix", "libraries/quix_kafka.py", EXACTLY, python=True),
    KafkaSystem("pathway", "pathway", "libraries/pathway_kafka.py", AT_LEAST, UPDATES, python=True),
)
LIVE = (
    KafkaSystem("penstock", "penstock", "penstock_kafka.py", AT_LEAST, arguments=_AT_LEAST_ONCE),
    KafkaSystem("pyflink", "flink", "flink/pyflink_kafka.py", AT_LEAST, arguments=_AT_LEAST_ONCE, python=True),
)
"""The systems whose latency is measured."""


def chosen(systems: Sequence[KafkaSystem], only: Sequence[str]) -> list[KafkaSystem]:
    """Return the systems with these names (default: all).

    Raises:
        SystemExit: a name is unknown.
    """
    names = [system.name for system in systems]
    if unknown := sorted(set(only) - set(names)):
        raise SystemExit(f"unknown system {unknown[0]!r}; choose from {', '.join(names)}")
    return [system for system in systems if not only or system.name in only]
