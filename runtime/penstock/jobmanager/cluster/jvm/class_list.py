"""Update of `jvm/classes.txt`, the list of the classes that the JVMs of a cluster load (see `class_archive`).

    python -m penstock.jobmanager.cluster.jvm.class_list

This command runs a small job on each runner, on a cluster whose driver and executor record the classes that they load. Run it
after an update of Spark or Java. A class that is missing in the list costs its JVM a little time. A class that no longer exists is
skipped.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from penstock.common.configuration import Configuration
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.executor import executing_on
from penstock.jobmanager.cluster.jvm.class_archive import BASE_OPTIONS, CLASS_LIST
from penstock.jobmanager.process.session.embedded import LocalClusterProvider
from penstock.jobmanager.process.session.session import Session


def renew() -> int:
    """Write the list again and return its number of lines."""
    with tempfile.TemporaryDirectory(prefix="penstock-classes-") as work:
        lists = {kind: Path(work, kind) for kind in ("driver", "executor")}
        _run_small_job(lists)
        lines = merged_classes(path.read_text() for path in lists.values())
    CLASS_LIST.write_text("\n".join(lines) + "\n")
    return len(lines)


def merged_classes(lists: Iterable[str]) -> list[str]:
    """Return the lines of several class lists, each once. Leave out classes that differ between runs (proxies and hidden classes),
    and classes of the engine's loader.

    >>> merged_classes(["# comment\\njava/lang/Object id: 0\\n", "a/B id: 7 super: 0 source: b.jar\\njava/lang/Object id: 3\\n"])
    ['java/lang/Object']
    """
    lines = (line for text in lists for line in text.splitlines() if "source:" not in line and line[:1] != "#")
    return sorted({line if line.startswith("@") else line.partition(" id:")[0] for line in lines})


def _run_small_job(lists: dict[str, Path]) -> None:
    session = Session(LocalClusterProvider())
    try:
        for runner in ("batched", "pipelined"):
            configuration = Configuration()
            configuration.set_string("penstock.runner", runner)
            for kind, path in lists.items():
                options = [*BASE_OPTIONS, f"-XX:DumpLoadedClassList={path}"]
                configuration.set_string(f"spark.{kind}.extraJavaOptions", " ".join(options))
            env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(1)
            pairs = env.from_collection([(n % 2, n) for n in range(10)])
            pairs.key_by(0).reduce(lambda total, one: one).add_sink(lambda value: None)
            with executing_on(session):
                env.execute("classes")
    finally:
        session.stop()


if __name__ == "__main__":
    print(f"{renew()} lines in {CLASS_LIST}")
