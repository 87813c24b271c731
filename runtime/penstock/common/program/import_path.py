"""The import path of a program. Its workers use the same path, because functions of modules are sent by name."""

from __future__ import annotations

import os
import sys


def import_path() -> list[str]:
    """Return this process's `sys.path` in a form for other processes: absolute, without PySpark's archives.

    Entries that a program, a test runner or a notebook has added keep their position.
    """
    entries = (os.path.abspath(entry) for entry in sys.path)
    return [entry for entry in dict.fromkeys(entries) if not entry.endswith(("/pyspark.zip", "-src.zip"))]
