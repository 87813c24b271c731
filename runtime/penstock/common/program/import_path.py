"""Where a program finds modules, so that its workers find the same ones: functions of modules travel by name."""

from __future__ import annotations

import os
import sys


def import_path() -> list[str]:
    """`sys.path` of this process as other processes can use it: absolute, without PySpark's archives.

    What a program, a test runner or a notebook has put there is in it, in its place.
    """
    entries = (os.path.abspath(entry) for entry in sys.path)
    return [entry for entry in dict.fromkeys(entries) if not entry.endswith(("/pyspark.zip", "-src.zip"))]
