"""The jars of Flink's planner, and the jar of Penstock's classes beside it.

The jars come from the wheel `apache-flink-libraries`, which pip checks by its checksum, or from the folder `lib` of `FLINK_HOME`. Flink
keeps the planner as a jar inside of another jar and extracts it at each start. Penstock extracts it once, into the cache directory.

A Java runtime has no compiler, so Janino compiles Penstock's classes. Janino is among Spark's jars.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import subprocess
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from penstock.common.errors import ClusterError, InvalidJob
from penstock.common.folders import private_folder
from penstock.common.program.extras import install
from penstock.jobmanager.cluster.jvm.installation import spark_home
from penstock.jobmanager.cluster.jvm.java import find_java

FLINK_VERSION = "2.3.0"
"""The version whose plans Penstock reads."""
WHEEL = "apache-flink-libraries"
_LOADER, _INNER = f"flink-table-planner-loader-{FLINK_VERSION}.jar", "flink-table-planner.jar"
_NEEDED = ("flink-table-api-java-uber", "flink-table-runtime", "flink-dist", "flink-cep")
_OWN = ("PlannerMain.java", "PenstockCatalog.java", "PenstockTables.java", "PenstockFunctions.java")
_BUILD_TIMEOUT_S = 300


def flink_lib() -> Path:
    """Return the folder with Flink's jars.

    Raises:
        InvalidJob: Flink's libraries are not installed, or in another version.
    """
    remedy = f"{install('flink-sql')}, or set FLINK_HOME to a Flink {FLINK_VERSION}"
    home = os.environ.get("FLINK_HOME")
    if home:
        folder = Path(home) / "lib"
    else:
        try:
            found = importlib.metadata.distribution(WHEEL)
        except importlib.metadata.PackageNotFoundError:
            raise InvalidJob(
                f"SQL needs Flink's planner, and the package {WHEEL} is not installed", remedy=remedy
            ) from None
        folder = Path(str(found.locate_file("pyflink/lib")))
    if not (folder / _LOADER).exists():
        raise InvalidJob(f"{folder} does not contain {_LOADER}, the planner of Flink {FLINK_VERSION}", remedy=remedy)
    return folder


def class_path() -> list[Path]:
    """Return the jars of the planner's process. At the first call, extract the planner and compile Penstock's classes."""
    lib = flink_lib()
    cache = private_folder.cache_folder("flink")
    planner = cache / f"planner-{FLINK_VERSION}.jar"
    if not planner.exists():
        _write(planner, lambda path: _extract(lib / _LOADER, path))
    flink = [planner, *(lib / f"{name}-{FLINK_VERSION}.jar" for name in _NEEDED), *sorted(lib.glob("log4j-*.jar"))]
    return [_own_jar(cache, flink), *flink]


def _extract(loader: Path, target: Path) -> None:
    with zipfile.ZipFile(loader) as archive:
        target.write_bytes(archive.read(_INNER))


def _own_jar(cache: Path, flink: list[Path]) -> Path:
    folder = Path(__file__).parent
    sources = [folder / name for name in (*_OWN, "BuildJar.java")]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources) + FLINK_VERSION.encode()).hexdigest()[:16]
    jar = cache / f"penstock-sql-{digest}.jar"
    if not jar.exists():
        _write(jar, lambda path: compile_jar([folder / name for name in _OWN], path, flink))
    return jar


def compile_jar(sources: list[Path], target: Path, flink: list[Path]) -> None:
    """Compile Java sources that use Flink's classes into a jar.

    Raises:
        ClusterError: the sources do not compile.
    """
    spark = spark_home() / "jars"
    compiler = [*spark.glob("janino-*.jar"), *spark.glob("commons-compiler-*.jar")]
    command = [
        str(Path(find_java()) / "bin" / "java"),
        "-cp",
        os.pathsep.join(map(str, [*compiler, *flink])),
        "org.codehaus.janino.SimpleCompiler",
        str(Path(__file__).parent / "BuildJar.java"),
        "penstocksql.BuildJar",
        str(target),
        *map(str, sources),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S, check=False)
    if done.returncode:
        raise ClusterError(
            f"the classes of the SQL planner do not compile: {done.stderr[-2000:]}",
            remedy=f"install Flink {FLINK_VERSION} and the locked version of Spark",
        )


def _write(path: Path, write: Callable[[Path], None]) -> None:
    """Create a file of the cache as a whole, so that another process never reads a part of it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".jar")
    os.close(handle)
    try:
        write(Path(temporary))
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
