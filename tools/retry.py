"""Run pytest, and run a few failed tests once more: `python -m tools.retry PYTEST-ARGUMENTS`.

The environment variable `PENSTOCK_RETRY=n` makes at most n failed tests run again, one after the other in one process. The second result counts.
Each test that passes only then is printed, and added to the file that `PENSTOCK_UNSTABLE` names. Without the variable, this is `pytest`.

CI uses this, because a machine that stops for some seconds makes a correct test of deadlines fail. An unstable test is still a defect.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

FAILED = 1  # pytest's exit code if all tests ran and at least one failed


def run(arguments: list[str], limit: int, unstable: Path | None) -> int:
    """Return the exit code of pytest, or of its second run."""
    if not limit:
        return _pytest(arguments)
    with tempfile.TemporaryDirectory() as cache:
        cached = [*arguments, "-o", f"cache_dir={cache}"]
        code = _pytest(cached)
        if code != FAILED:
            return code
        failed = sorted(json.loads((Path(cache) / "v/cache/lastfailed").read_text()))
        if len(failed) > limit:
            print(
                f"== {len(failed)} tests failed. They do not run again, because the limit is {limit} (PENSTOCK_RETRY).",
                flush=True,
            )
            return code
        print(f"== {len(failed)} tests failed. They run again, alone.", flush=True)
        code = _pytest([*cached, "--last-failed", "--last-failed-no-failures=none", *_without_workers(arguments)])
    if code == 0:
        report = "".join(f"unstable: {name}\n" for name in failed)
        print(f"== passed in the second run\n{report}", end="", flush=True)
        if unstable is not None:
            with unstable.open("a") as file:
                file.write(report)
    return code


def _pytest(arguments: list[str]) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", "-q", *arguments], check=False).returncode


def _without_workers(arguments: list[str]) -> list[str]:
    """Return the option that makes pytest-xdist start no workers, if the arguments start some."""
    return ["-n", "0"] if "-n" in arguments else []


if __name__ == "__main__":
    named = os.environ.get("PENSTOCK_UNSTABLE")
    sys.exit(run(sys.argv[1:], int(os.environ.get("PENSTOCK_RETRY") or 0), Path(named) if named else None))
