"""Faster start of the JVMs: an archive of classes that are already parsed and verified. All JVMs map the archive.

A cluster consists of several JVMs (the driver's, and one for each executor). Each loads about 7,000 classes of Spark, which takes about
2 CPU seconds. This is most of the cost of starting a job or a replacement executor. Java's class data sharing halves the time
and shares the memory. The archive belongs to one Java and one installation of Spark. This command creates it, if it does not exist:

    python -m penstock.jobmanager.cluster.jvm.class_archive [FOLDER]

The list of the classes is `jvm/classes.txt`, which `class_list` updates. `make setup` and the build of the base image run this command.
Clusters use the archive if they find it beside the package (images) or in the cache folder. A JVM whose archive does not match runs without
it.

Java accepts an archive only if the class path begins with the same entries as at its creation. Spark's launcher writes `jars/*`,
which the JVM expands in directory order, and this order differs between disks. For this reason an empty jar, the *path jar*, is the
first entry. Its manifest lists Spark's jars in a fixed order.
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
"""Options of every JVM. The JVMs compute little, so limited compilation and a single-threaded collector cost least. `UsePerfData` would
start a thread that wakes up 20 times per second to collect data for `jstat`.

About 30 MB of the heap are in use. Java would derive a larger heap from the machine's memory, and 100 MB of garbage would accumulate
before the first collection. In a heap of 64 MB, the collector ran so often that a benchmark took a fifth more CPU time. A heap of
128 MB did not increase the CPU time of the benchmark.
"""
SMALL = (
    "-Xmn16m",
    "-XX:SurvivorRatio=2",
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:TrimNativeHeapInterval=60000",
)
"""Options of JVMs in separate processes, whose records are in Python. New objects live only while a row is in transit. Eden fills
completely before the first collection. The default size of Eden is a quarter of the heap, 34 MB. The survivor spaces keep their default
size and hold the rows in transit. Memory that Java frees in the C heap returns to the system once a minute.
"""
CLASS_LIST = Path(__file__).parent / "classes.txt"
_QUIET = "-Xlog:cds=off"
_IN_PLACE = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")
"""Options that map the archive at a fixed address, so that the JVMs of a machine share its memory. By default, Java maps the archive at
another address each time and then writes to all of it. Each JVM would then need a separate copy of 77 MB.
"""
_KEY_STORES = "-Dkeystore.pkcs12.keyPbeIterationCount=1"
"""Option for a quick TLS context. Netty puts the private key into a key store that only exists in memory. The key that encrypts this entry
is derived in rounds. The default of 10,000 rounds takes 0.2 s in a new JVM. The option does not affect key stores in files, because the
file contains its number of rounds.
"""
INCUBATING = "--add-modules=jdk.incubator.vector"
"""Option that Spark would set for drivers and executors. Penstock leaves it out, because Java prints a warning about it into the program's
output. Only MLlib's linear algebra uses the module.
"""
_EARLIEST = (1980, 1, 1, 0, 0, 0)
_EARLIEST_S = 315_532_800
"""Date of the path jar. Java compares it with the date at the creation of the archive."""


def jvm_options(java_home: str) -> list[str]:
    """Return the options of every JVM of a cluster."""
    archive = find_archive(java_home)
    return [*BASE_OPTIONS, _KEY_STORES, *([f"-XX:SharedArchiveFile={archive}", *_IN_PLACE, _QUIET] if archive else [])]


def extra_class_path(java_home: str) -> str:
    """Return the first entries of the class path of these JVMs, or an empty string without an archive."""
    archive = find_archive(java_home)
    return str(archive.with_suffix(".jar")) if archive else ""


def class_path(java_home: str) -> str:
    """Return the class path of a JVM that Spark's launcher does not start, in the launcher's format."""
    return os.pathsep.join(filter(None, (extra_class_path(java_home), spark_class_path())))


def spark_class_path() -> str:
    """Return Spark's part of the class path."""
    home = spark_home()
    return os.pathsep.join([f"{home}/conf", *map(str, _logging_jars()), f"{home}/jars/*"])


def find_archive(java_home: str) -> Path | None:
    """Return the archive of this Java and this Spark. Its path jar is in the same directory."""
    name = _name(java_home)
    found = (folder / name for folder in (Path(__file__).parent, cache_folder()))
    return next((path for path in found if path.exists() and path.with_suffix(".jar").exists()), None)


def _name(java_home: str) -> str:
    """Return a name that identifies the Java, the installation of Spark and the list of classes."""
    release = Path(java_home, "release")
    java = release.read_text() if release.exists() else java_home
    classes = hashlib.sha256(CLASS_LIST.read_bytes()).hexdigest()
    digest = hashlib.sha256(
        repr((java, spark_version(), str(spark_home() / "__init__.py"), classes, BASE_OPTIONS)).encode()
    ).hexdigest()
    return f"spark-{digest[:16]}.jsa"


def make_archive(folder: Path | None = None) -> Path:
    """Create the archive of this Java and this Spark, unless the folder (default: the cache) contains it.

    Raises:
        ClusterError: no Java was found, or Java could not create the archive.
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
                remedy="clusters start without the archive, with twice the CPU time. Check that 100 MB of disk space are free",
            )
        archive.replace(target)
    return target


def write_path_jar(target: Path, jars: list[Path], work: Path) -> None:
    """Write a jar whose manifest lists other jars, relative to its directory."""
    entries = " ".join(os.path.relpath(jar, target.parent) for jar in jars)
    content = "\r\n".join(["Manifest-Version: 1.0", *_manifest_lines(f"Class-Path: {entries}"), "", ""])
    draft = work / target.name
    with zipfile.ZipFile(draft, "w") as jar:
        jar.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF", _EARLIEST), content)
    os.utime(draft, (_EARLIEST_S, _EARLIEST_S))
    draft.chmod(0o644)
    draft.replace(target)


def _manifest_lines(attribute: str) -> list[str]:
    """Return the lines of an attribute. A line has at most 72 bytes, and a continuation line begins with a space.

    >>> _manifest_lines("Class-Path: " + "a" * 70)
    ['Class-Path: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', ' aaaaaaaaaa']
    """
    first, rest = attribute[:72], attribute[72:]
    return [first, *(f" {rest[begin : begin + 71]}" for begin in range(0, len(rest), 71))]


def _jars() -> list[Path]:
    return sorted((spark_home() / "jars").glob("*.jar"))


def _logging_jars() -> list[Path]:
    """Return the jars that Spark's launcher puts first."""
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
