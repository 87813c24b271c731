"""The fixtures that Penstock adds to pytest."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PLUGIN = "penstock.pytest_plugin"
ROOT = Path(__file__).parents[3]
TESTS = """
    import pytest

    pytestmark = pytest.mark.penstock(parallelism=3)

    def doubled(job_harness):
        job_harness.collect(job_harness.source("numbers").map(lambda n: n * 2), "doubled")
        job_harness.push("numbers", 1, 2, 3)
        return job_harness.outputs("doubled")

    def test_one(job_harness):
        assert doubled(job_harness) == [2, 4, 6]
        assert job_harness.parallelism == 3

    @pytest.mark.penstock(parallelism=2, backend="rocksdb")
    def test_another(job_harness):
        assert doubled(job_harness) == [2, 4, 6]
        assert job_harness.parallelism == 2

    def test_an_operator(operator_harness):
        from penstock.datastream.functions import ProcessFunction

        class Twice(ProcessFunction):
            def process_element(self, value, ctx):
                yield value
                yield value

        harness = operator_harness(Twice())
        harness.push(1)
        assert harness.outputs() == [1, 1]
"""


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processes of these tests find the engine of this process."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


def test_fixtures_create_harnesses_with_the_arguments_of_the_mark(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    pytester.runpytest_subprocess("-p", PLUGIN, "--strict-markers", "-p", "no:cacheprovider").assert_outcomes(passed=3)


def test_the_package_declares_the_plugin() -> None:
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    assert points == {PLUGIN: PLUGIN}
    assert importlib.import_module(PLUGIN)


def test_tests_without_fixtures_do_not_load_the_engine() -> None:
    code = f"import sys, {PLUGIN}; sys.exit('penstock.jobmanager' in sys.modules or 'pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
