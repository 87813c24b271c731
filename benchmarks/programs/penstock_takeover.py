"""SIGKILL of the JobManager of a running job, which another one replaces immediately, like in a Kubernetes Deployment.

    python penstock_takeover.py --out DIR [--rate 1000] [--warm-up 10] [--seconds 5]

Both run `penstock_live` with the same job id and folder. `acted`: the moment of the kill. `resumed`: the moment at which a record
arrived at a sink of the second.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import uuid
from pathlib import Path

PATIENCE_S = 120.0


def start(options: argparse.Namespace, job_id: str) -> subprocess.Popen[bytes]:
    live = Path(__file__).with_name("penstock_live.py")
    command = [sys.executable, str(live), "--out", options.out, "--job-id", job_id, "--rate", str(options.rate)]
    return subprocess.Popen([*command, "--runner", options.runner, "--seconds", "100000"])


def await_output(out: Path, known: set[Path], process: subprocess.Popen[bytes]) -> float:
    """Return when a sink wrote to a file that is not `known` (s since the epoch)."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit(f"the JobManager ended with {process.returncode}")
        if any(path.stat().st_size for path in set(out.glob("latency-*")) - known):
            return time.time()
        time.sleep(0.01)
    raise SystemExit(f"no output for {PATIENCE_S:.0f} s")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--out", required=True)
    arguments.add_argument("--rate", type=float, default=1000)
    arguments.add_argument("--runner", default="batched")
    arguments.add_argument("--warm-up", type=float, default=10)
    arguments.add_argument("--seconds", type=float, default=5)
    options = arguments.parse_args()
    out, job_id = Path(options.out).resolve(), uuid.uuid4().hex
    first = start(options, job_id)
    begin = await_output(out, set(), first)
    time.sleep(options.warm_up)
    known = set(out.glob("latency-*"))
    acted = time.time()
    first.kill()
    first.wait()
    second = start(options, job_id)
    resumed = await_output(out, known, second)
    time.sleep(options.seconds)
    end = time.time()
    second.terminate()
    second.wait()
    print("RESULT " + json.dumps({"begin": begin, "end": end, "acted": acted, "resumed": resumed}), flush=True)


if __name__ == "__main__":
    main()
