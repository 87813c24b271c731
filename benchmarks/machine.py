"""The machine of the measurements, and its load."""

from __future__ import annotations

import os
import platform
from datetime import datetime
from pathlib import Path
from typing import Any


def describe() -> dict[str, Any]:
    """Return processor, cores, memory, operating system, date and the current load average."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "date": f"{datetime.now():%-d %B %Y}",
        "load": [round(load, 2) for load in os.getloadavg()],
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()
