"""Whether the packages that a requirements file asks for are there."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_NAME = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[[^\]]*\])?\s*(?:==\s*([A-Za-z0-9.+!]+))?")


def missing_packages(path: Path) -> list[str]:
    """The lines that this interpreter's packages do not meet, with what is there instead.

    Names and exact versions (`==`) are looked at; a line that is neither (an option, a URL) cannot be met.
    """
    missing = []
    for line in path.read_text(encoding="utf-8").splitlines():
        wanted = line.partition("#")[0].partition(";")[0].strip()
        if not wanted:
            continue
        found = _NAME.match(wanted)
        if found is None or "://" in wanted:
            missing.append(wanted)
            continue
        try:
            there = version(found[1])
        except PackageNotFoundError:
            missing.append(wanted)
            continue
        if found[3] is not None and there != found[3]:
            missing.append(f"{wanted} (there is {there})")
    return missing
