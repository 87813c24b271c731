"""The times of a Flink job in the log of its mini cluster: from the moment all tasks run to the end of the job."""

from __future__ import annotations

import os
import re
from datetime import datetime
from pathlib import Path


def log_into(folder: Path) -> None:
    """Set the folder of the log. Call it before Flink is imported."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["FLINK_LOG_DIR"] = str(folder)


def run_times(folder: Path) -> dict[str, object]:
    begin = end = None
    checkpoints = []
    for path in folder.glob("*.log"):
        for line in path.open(errors="replace"):
            if "INITIALIZING to RUNNING" in line:
                begin = max(begin or 0.0, _moment(line))
            elif "from state RUNNING to FINISHED" in line:
                end = _moment(line)
            elif found := re.search(r"Completed checkpoint.*checkpointDuration=(\d+) ms", line):
                checkpoints.append(int(found[1]))
    return {"begin": begin, "end": end, "checkpoints": len(checkpoints)}


def _moment(line: str) -> float:
    return datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S,%f").timestamp()
