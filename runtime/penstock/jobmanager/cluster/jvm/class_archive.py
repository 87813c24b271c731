"""Start-up of the JVMs: an archive of the classes that they load, parsed and verified once and mapped by all of them.

A cluster is several JVMs (driver, workers, an executor for each), and each loads some 7,000 classes of Spark's: about two
CPU seconds apiece, which is most of what a start costs, of a job as of an executor that was lost. With Java's class data
sharing they take half of it, and share the memory. The archive belongs to one Java and one installation of Spark:

    python -m penstock.jobmanager.cluster.jvm.class_archive [FOLDER]

makes it from the list in `jvm/classes.txt` (`class_list` renews that), if it is not there. `make setup` does so, and the
build of the base image. Clusters use it where they find it: beside the package (images), or in the cache folder. A JVM that
finds it does not fit goes on without.

Java takes an archive only if the class path begins as it did when the archive was made. Spark's launcher writes
`jars/*`, which the JVM expands in the order of the directory, another one on each disk. So a jar without content, the
*path jar*, goes before it: its manifest names Spark's jars, in order.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from penstock.common.errors import ClusterError
from penstock.jobmanager.cluster.jvm.classes import cache_folder
from penstock.jobmanager.cluster.jvm.installation import spark_home, spark_version
from penstock.jobmanager.cluster.jvm.java import find_java

BASE_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xms128m", "-XX:-UsePerfData")
"""Of every JVM: they hardly compute, so compiling little and collecting in one thread costs least. What `jstat` would read is
made by a thread that wakes up twenty times a second.

Some 30 MB of a heap are in use. The size that Java would choose by the machine's memory fills with 100 MB of garbage before
the first collection; with 64 MB they collect so often that W2 cost a fifth more CPU time, with 128 MB it cost none.
"""
SMALL = (
    "-Xmn16m",
    "-XX:SurvivorRatio=2",
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:TrimNativeHeapInterval=60000",
)
"""Of JVMs in processes of their own, whose records are Python's: what they make anew lives as long as a row is on its way. Eden is written to
as a whole before it is collected the first time, a quarter of the heap if nothing is said, 34 MB; survivors, as large as ever, hold
the rows that are on their way. What Java has freed of C's heap goes back to the system once a minute.
"""
CLASS_LIST = Path(__file__).parent / "classes.txt"
_QUIET = "-Xlog:cds=off"
_IN_PLACE = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")
"""Java maps an archive somewhere else each time unless told otherwise, and then writes to all of it: 77 MB that each JVM has for
itself, where those of a machine could share them."""
INCUBATING = "--add-modules=jdk.incubator.vector"
"""Spark would have it given to drivers and executors, and Java warns for it in the program's output. Only MLlib's linear algebra has a use for it."""
_EARLIEST = (1980, 1, 1, 0, 0, 0)
_EARLIEST_S = 315_532_800
"""The path jar's date: Java compares it with that of the time when the archive was made."""


def jvm_options(java_home: str) -> list[str]:
    """Options of every JVM of a cluster."""
    archive = find_archive(java_home)
    return [*BASE_OPTIONS, *([f"-XX:SharedArchiveFile={archive}", *_IN_PLACE, _QUIET] if archive else [])]


def extra_class_path(java_home: str) -> str:
    """What must stand first on the class path of these JVMs; empty without an archive."""
    archive = find_archive(java_home)
    return str(archive.with_suffix(".jar")) if archive else ""


def class_path(java_home: str) -> str:
    """Of a JVM that is not started by Spark's launcher, as that writes it."""
    return os.pathsep.join(filter(None, (extra_class_path(java_home), spark_class_path())))


def spark_class_path() -> str:
    """What is Spark's own of it."""
    home = spark_home()
    return os.pathsep.join([f"{home}/conf", *map(str, _logging_jars()), f"{home}/jars/*"])


def find_archive(java_home: str) -> Path | None:
    """The archive of this Java and this Spark; its path jar lies beside it."""
    name = _name(java_home)
    found = (folder / name for folder in (Path(__file__).parent, cache_folder()))
    return next((path for path in found if path.exists() and path.with_suffix(".jar").exists()), None)


def _name(java_home: str) -> str:
    """Tells Javas, installations of Spark and lists of classes apart."""
    release = Path(java_home, "release")
    java = release.read_text() if release.exists() else java_home
    classes = hashlib.sha256(CLASS_LIST.read_bytes()).hexdigest()
    digest = hashlib.sha256(
        repr((java, spark_version(), str(spark_home() / "__init__.py"), classes, BASE_OPTIONS)).encode()
    ).hexdigest()
    return f"spark-{digest[:16]}.jsa"


def make_archive(folder: Path | None = None) -> Path:
    """Make the archive of this Java and this Spark, unless there is one in the folder (the cache).

    Raises:
        ClusterError: no Java was found, or it could not make it.
    """
    java_home = find_java()
    target = (folder or cache_folder()) / _name(java_home)
    path_jar = target.with_suffix(".jar")
    if target.exists() and path_jar.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="penstock-classes-", dir=target.parent) as work:
        write_path_jar(path_jar, [*_logging_jars(), *_other_jars()], Path(work))
        archive = Path(work, "archive")
        command = [f"{java_home}/bin/java", "-Xshare:dump", *BASE_OPTIONS, "-Xlog:disable", "-Xlog:all=error"]
        command += [f"-XX:SharedClassListFile={CLASS_LIST}", f"-XX:SharedArchiveFile={archive}", "-cp", str(path_jar)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            raise ClusterError(
                f"{command[0]} could not make an archive of classes (code {done.returncode}): {done.stdout.strip()[-2000:]}",
                remedy="clusters start without it, in twice the CPU time; is there space for 100 MB?",
            )
        archive.replace(target)
    return target


def write_path_jar(target: Path, jars: list[Path], work: Path) -> None:
    """A jar whose manifest names others, relative to the folder it lies in."""
    entries = " ".join(os.path.relpath(jar, target.parent) for jar in jars)
    content = "\r\n".join(["Manifest-Version: 1.0", *_manifest_lines(f"Class-Path: {entries}"), "", ""])
    draft = work / target.name
    with zipfile.ZipFile(draft, "w") as jar:
        jar.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF", _EARLIEST), content)
    os.utime(draft, (_EARLIEST_S, _EARLIEST_S))
    draft.chmod(0o644)
    draft.replace(target)


def _manifest_lines(attribute: str) -> list[str]:
    """Lines have at most 72 bytes; those that go on begin with a space.

    >>> _manifest_lines("Class-Path: " + "a" * 70)
    ['Class-Path: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', ' aaaaaaaaaa']
    """
    first, rest = attribute[:72], attribute[72:]
    return [first, *(f" {rest[begin : begin + 71]}" for begin in range(0, len(rest), 71))]


def _jars() -> list[Path]:
    return sorted((spark_home() / "jars").glob("*.jar"))


def _logging_jars() -> list[Path]:
    """Spark's launcher puts them first."""
    return [jar for jar in _jars() if jar.name.startswith("slf4j-api-")]


def _other_jars() -> list[Path]:
    return [jar for jar in _jars() if not jar.name.startswith("slf4j-api-")]


def main(arguments: list[str]) -> int:
    try:
        print(make_archive(Path(arguments[0]).resolve() if arguments else None))
    except (ClusterError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
