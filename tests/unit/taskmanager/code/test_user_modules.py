"""A worker process finds the modules of its job, and forgets those of the previous job."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

MODULE = "modules_of_a_job"
PROGRAM = """
import sys
from penstock.taskmanager.user_modules import UserModules
modules, base = UserModules(), list(sys.path)
modules.serve("first", [sys.argv[1], *base])
import modules_of_a_job, json
kept = json
print(modules_of_a_job.NAME, sys.path == [sys.argv[1], *base])
modules.serve("second", [sys.argv[2], *base])
import modules_of_a_job, json
print(modules_of_a_job.NAME, sys.path == [sys.argv[2], *base], json is kept)
modules.serve("third", [])
try:
    import modules_of_a_job
except ImportError as error:
    print(error)
"""


def test_each_job_has_its_own_modules_in_the_order_of_its_path(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{MODULE}.py").write_text(f"NAME = {name!r}", encoding="utf-8")
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "a"), str(tmp_path / "b")],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(filter(None, sys.path))},
    )
    assert result.stdout.splitlines() == ["a True", "b True True", f"No module named '{MODULE}'"]
