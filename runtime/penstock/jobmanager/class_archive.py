"""Start-up of the JVMs: an archive of the classes that they load, parsed and verified once and mapped by all of them.

A cluster is several JVMs (driver, workers, an executor per slot), and each loads some 7,000 classes of Spark's: about two
CPU seconds apiece, which is most of what a start costs, of a job as of an executor that was lost. With Java's class data
sharing they take half of it, and share the memory. The archive belongs to one Java and one installation of Spark and takes
half a minute and 90 MB to make, so it is made on demand,

    python -m penstock.jobmanager.class_archive [FOLDER]

by running a small job whose JVMs note down the classes they load, and dumping those. Clusters use the archive when there is
one: beside the package (images), or in the cache folder. A JVM that finds it does not fit goes on without.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pyspark

from penstock.jobmanager.java import find_java
from penstock.jobmanager.jvm import cache_folder

BASE_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Of every JVM: they hardly compute, so compiling little and collecting in one thread costs least."""
_QUIET = "-Xlog:cds=off"
_MODULES = "--add-modules=jdk.incubator.vector"
"""Spark's launcher gives it to drivers and executors."""


def jvm_options(java_home: str) -> list[str]:
    """Options of every JVM of a cluster."""
    archive = find_archive(java_home)
    return [*BASE_OPTIONS, *([f"-XX:SharedArchiveFile={archive}", _QUIET] if archive else [])]


def class_path() -> str:
    """As Spark's launcher writes it: a JVM takes an archive only if it was made with the same."""
    home = Path(pyspark.__file__).parent
    first = sorted(str(jar) for jar in (home / "jars").glob("slf4j-api-*.jar"))
    return os.pathsep.join([f"{home}/conf", *first, f"{home}/jars/*"])


def find_archive(java_home: str) -> Path | None:
    name = _name(java_home)
    folders = (Path(__file__).parent, cache_folder())
    return next((folder / name for folder in folders if (folder / name).exists()), None)


def _name(java_home: str) -> str:
    """Tells Javas and installations of Spark apart."""
    release = Path(java_home, "release")
    java = release.read_text() if release.exists() else java_home
    digest = hashlib.sha256(repr((java, pyspark.__version__, class_path())).encode()).hexdigest()
    return f"spark-{digest[:16]}.jsa"


def make_archive(folder: Path | None = None) -> Path:
    """Make the archive of this Java and this Spark.

    Raises:
        subprocess.CalledProcessError: Java could not make it; its output has been shown.
    """
    java_home = find_java()
    target = (folder or cache_folder()) / _name(java_home)
    with tempfile.TemporaryDirectory(prefix="penstock-classes-", dir=target.parent) as work:
        lists = [Path(work, kind) for kind in ("driver", "executor")]
        _run_small_job(*lists)
        merged, archive = Path(work, "classes"), Path(work, "archive")
        merged.write_text("\n".join(merged_classes(path.read_text() for path in lists)) + "\n")
        command = [f"{java_home}/bin/java", "-Xshare:dump", *BASE_OPTIONS, _MODULES, "-Xlog:cds=error"]
        command += [f"-XX:SharedClassListFile={merged}", f"-XX:SharedArchiveFile={archive}", "-cp", class_path()]
        subprocess.run(command, check=True)
        archive.replace(target)
    return target


def merged_classes(lists: Iterable[str]) -> list[str]:
    """The lines of several class lists, each once; without the classes of custom loaders, which depend on more.

    >>> merged_classes(["# comment\\njava/lang/Object id: 0\\n", "a/B id: 7 super: 0 source: b.jar\\njava/lang/Object id: 3\\n"])
    ['java/lang/Object']
    """
    lines = (line for text in lists for line in text.splitlines() if "source:" not in line and line[:1] != "#")
    return sorted({line if line.startswith("@") else line.partition(" id:")[0] for line in lines})


def _run_small_job(driver_list: Path, executor_list: Path) -> None:
    """Both runners, on a cluster whose driver and executor leave lists of their classes."""
    from penstock.common.configuration import Configuration
    from penstock.common.executor import executing_on
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
    from penstock.jobmanager.embedded import LocalClusterProvider
    from penstock.jobmanager.session import Session

    session = Session(LocalClusterProvider())
    try:
        for runner in ("batched", "pipelined"):
            configuration = Configuration()
            configuration.set_string("penstock.runner", runner)
            for kind, path in (("driver", driver_list), ("executor", executor_list)):
                options = [*BASE_OPTIONS, f"-XX:DumpLoadedClassList={path}"]
                configuration.set_string(f"spark.{kind}.extraJavaOptions", " ".join(options))
            env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(1)
            pairs = env.from_collection([(n % 2, n) for n in range(10)])
            pairs.key_by(0).reduce(lambda total, one: one).add_sink(lambda value: None)
            with executing_on(session):
                env.execute("classes")
    finally:
        session.stop()


def main(arguments: list[str]) -> None:
    print(make_archive(Path(arguments[0]).resolve() if arguments else None))


if __name__ == "__main__":
    main(sys.argv[1:])
