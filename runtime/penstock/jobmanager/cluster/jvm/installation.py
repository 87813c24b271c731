"""Location and version of the Spark installation, found without importing Spark. The import would take 10 MB in every worker process."""

from __future__ import annotations

import importlib.util
import runpy
from functools import cache
from pathlib import Path


@cache
def spark_home() -> Path:
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


@cache
def spark_version() -> str:
    return str(runpy.run_path(str(spark_home() / "version.py"))["__version__"])
