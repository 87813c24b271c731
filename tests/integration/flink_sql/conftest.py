"""Flink's planner and MiniCluster, from the wheel with Flink's jars."""

from __future__ import annotations

import pytest

from penstock.sql.planner.process import PlannerProcess
from penstock.sql.tables.connectors import CONNECTORS
from tools.flink import flink_home


@pytest.fixture(scope="session")
def flink(tmp_path_factory):
    """A folder like FLINK_HOME, which the environment names during the tests."""
    with pytest.MonkeyPatch.context() as patch:
        home = flink_home()
        patch.setenv("FLINK_HOME", str(home))
        yield home


@pytest.fixture(scope="module")
def planner(flink):
    process = PlannerProcess({name: connector.modes for name, connector in CONNECTORS.items()})
    yield process
    process.close()
