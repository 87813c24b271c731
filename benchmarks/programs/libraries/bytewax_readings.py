"""Run `bytewax_flow` in two processes, with a recovery store that takes a snapshot every second."""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

PROCESSES = 2


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("workload")
    arguments.add_argument("--data", required=True)
    arguments.add_argument("--out", required=True)
    options = arguments.parse_args()
    out = Path(options.out).resolve()
    (out / "results").mkdir()
    store = out / "recovery"
    store.mkdir()
    subprocess.run([sys.executable, "-m", "bytewax.recovery", store, str(PROCESSES)], check=True)
    environment = {
        **os.environ,
        "WORKLOAD": options.workload,
        "DATA": str(Path(options.data).resolve()),
        "OUT": str(out),
    }
    addresses = ";".join(f"localhost:{free_port()}" for _ in range(PROCESSES))
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "bytewax.run",
        "bytewax_flow:flow",
        "-r",
        store,
        "-s",
        "1",
        "-b",
        "0",
    ]
    processes = [
        subprocess.Popen([*command, "-i", str(n), "-a", addresses], env=environment, cwd=Path(__file__).parent)
        for n in range(PROCESSES)
    ]
    codes = [process.wait() for process in processes]
    if any(codes):
        sys.exit(f"bytewax ended with {codes}")
    summaries = [json.loads(path.read_text()) for path in out.glob("summary-*.json")]
    result = {
        "begin": max(summary["begin"] for summary in summaries),
        "end": max(summary["end"] for summary in summaries),
    }
    if options.workload in ("w1", "w2"):
        result |= {name: sum(summary[name] for summary in summaries) for name in ("count", "sum")}
    print("RESULT " + json.dumps(result))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    main()
