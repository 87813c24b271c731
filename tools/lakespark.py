"""A Spark with Delta Lake's and Iceberg's connectors, for tests: a second reader and writer of the tables that Penstock writes.

These connectors do not support Spark's newest version. This module therefore uses an older Spark in a separate environment
(410 MB, created once), with jars from ``mavenjars``.

    with LakeSpark(tmp_path, catalog.url) as spark:
        spark.sql("select count(*) as n from delta.`/data/table`")
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any, Self

from tools.gobuild import cache_root, file_lock
from tools.mavenjars import MavenJars

JARS = MavenJars(Path(__file__).resolve().parent / "lakespark")
PYSPARK = "pyspark==4.1.4"


def environment() -> Path:
    """Return the Python interpreter of the environment, and create the environment if it is missing.

    Raises:
        subprocess.CalledProcessError: PySpark cannot be installed.
    """
    home = cache_root() / "venvs" / PYSPARK
    with file_lock(home.with_suffix(".lock")):
        if not (home / ".ready").exists():
            venv.create(home, with_pip=True, clear=True)
            subprocess.run([home / "bin" / "python", "-m", "pip", "install", "-q", PYSPARK], check=True)
            (home / ".ready").touch()
    return home / "bin" / "python"


class LakeSpark:
    """A Spark session in a separate process.

    Args:
        folder: directory for Spark's files.
        catalog: URL of an Iceberg REST catalog. Its name in SQL is ``lake``.
    """

    def __init__(self, folder: Path, catalog: str = "") -> None:
        program = Path(__file__).resolve().parent / "lakespark" / "program.py"
        command = [str(environment()), str(program), str(JARS.ensure()), str(folder), catalog]
        clean = {
            key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_", "PYTHON"))
        }
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "spark.log").open("wb"),
            env=clean,
            text=True,
        )
        self._log = folder / "spark.log"
        self._expect("READY")

    def sql(self, statement: str) -> list[dict[str, Any]]:
        """Return the rows of a statement. Values that JSON does not support become text.

        Raises:
            RuntimeError: Spark rejects the statement.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"sql": statement}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._expect("ANSWER"))
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return list(answer["rows"])

    def _expect(self, word: str) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(word):
                return line.removeprefix(word)
        raise RuntimeError(f"Spark has ended: {self._log.read_text()[-3000:]}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()  # the program reads to the end of its input, and exits
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


if __name__ == "__main__":
    print(environment(), JARS.ensure(), file=sys.stderr)
