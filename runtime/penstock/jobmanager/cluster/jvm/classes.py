"""The engine's Java code, which is small, and its compilation with the compiler that Spark includes.

Java is needed for these reasons:

1. Spark's ShuffledRDD cannot place a partition on a given executor, and a subtask must run on the executor that has its state.
2. The pipelined shuffle is available only through a dependency class, which no Python API reaches.
3. An epoch needs one call over the gateway instead of about fifty.
4. Spark's cluster managers start executors themselves. In Penstock, TaskManagers start them.

The sources are package data. Janino, which is among Spark's jars, compiles them into a jar, so no Java compiler is needed. The jar is
cached under the hash of the sources and the Spark version.

The jar also contains Spark's streaming shuffle under other names (`_RELOCATED`), like a shaded jar. The copies use
`SealedTransport` instead of Spark's `TransportContext`. `SealedShuffleManager.java` explains why.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
from importlib import resources
from pathlib import Path
from typing import Any

from penstock.common.errors import ClusterError
from penstock.common.folders import private_folder
from penstock.jobmanager.cluster.jvm.installation import spark_home, spark_version

_SHUFFLE = "org/apache/spark/shuffle/streaming/"
_RELOCATED = ("StreamingShuffleWriter", "StreamingShuffleReader")
"""Classes to relocate, with their inner classes."""
_SERVICES = {"META-INF/services/org.apache.spark.scheduler.ExternalClusterManager": b"penstock.SlotCluster\n"}
"""Files by which Spark finds implementations of an interface."""
_RENAMED = {"org/apache/spark/network/TransportContext": "penstock/SealedTransport"}


def _sources() -> dict[str, str]:
    folder = resources.files(__package__)
    return {f.name: f.read_text() for f in sorted(folder.iterdir(), key=lambda f: f.name) if f.name.endswith(".java")}


def cache_folder() -> Path:
    """Return the cache directory of the JVMs' files. Create it if it does not exist, accessible only to this user.

    Raises:
        ClusterError: the directory belongs to another user.
    """
    return private_folder.cache_folder("jvm")


def build_jar(gateway: Any) -> Path:
    """Return the jar with the engine's classes. If it is not cached, compile it in the gateway's JVM."""
    sources = _sources()
    made_of = (sorted(sources.items()), Path(__file__).read_text(), spark_version())
    digest = hashlib.sha256(repr(made_of).encode()).hexdigest()[:16]
    packaged = Path(__file__).parent / f"penstock-{digest}.jar"
    if packaged.exists():
        return packaged
    jar = cache_folder() / f"penstock-{digest}.jar"
    if not jar.exists():
        classes = _relocate(gateway, _compile(gateway, sources))
        handle, temporary = tempfile.mkstemp(dir=jar.parent)
        os.close(handle)
        with zipfile.ZipFile(temporary, "w") as archive:
            for name, content in (classes | _SERVICES).items():
                archive.writestr(name, content)
        os.replace(temporary, jar)
    return jar


def _compile(gateway: Any, sources: dict[str, str]) -> dict[str, bytes]:
    jvm = gateway.jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    compiler = jvm.org.codehaus.commons.compiler.CompilerFactoryFactory.getDefaultCompilerFactory(loader).newCompiler()
    resource = jvm.org.codehaus.commons.compiler.util.resource
    units = gateway.new_array(resource.Resource, len(sources))
    for index, (name, text) in enumerate(sources.items()):
        units[index] = resource.StringResource(f"penstock/{name}", text)
    classes = jvm.java.util.HashMap()
    compiler.setClassFileCreator(resource.MapResourceCreator(classes))
    compiler.setSourceVersion(8)
    compiler.setTargetVersion(8)
    compiler.compile(units)
    # Read the keys as an array. The end of a py4j iterator is a Java exception, and PySpark cannot translate the
    # exception without a SparkContext.
    names = classes.keySet().toArray()
    return {name: bytes(classes.get(name)) for name in (names[index] for index in range(len(names)))}


def _relocate(gateway: Any, own: dict[str, bytes]) -> dict[str, bytes]:
    """Return Spark's shuffle classes, moved to the package `penstock.shuffle`, and all classes of the engine. References
    of the engine's classes name the moved classes.

    The relocation uses a library that is among Spark's jars.
    """
    classes: dict[str, bytes] = {}
    for jar in sorted((spark_home() / "jars").glob("spark-core_*.jar")):
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if name.startswith(tuple(_SHUFFLE + of for of in _RELOCATED)):
                    classes[name.removesuffix(".class")] = archive.read(name)
    if not classes:
        raise ClusterError(
            f"Spark {spark_version()} has no {_SHUFFLE}{_RELOCATED[0]}", remedy="install the version that is locked"
        )
    asm = gateway.jvm.org.apache.xbean.asm9
    names = gateway.jvm.java.util.HashMap()
    for name in classes:
        names.put(name, name.replace(_SHUFFLE, "penstock/shuffle/"))

    def renamed(content: bytes) -> bytes:
        writer = asm.ClassWriter(0)
        remapper = asm.commons.ClassRemapper(writer, asm.commons.SimpleRemapper(names))
        asm.ClassReader(bytearray(content)).accept(remapper, 0)
        return bytes(writer.toByteArray())

    relocated = {name: renamed(content) for name, content in own.items()}
    for name, other in _RENAMED.items():
        names.put(name, other)
    return relocated | {f"{names.get(name)}.class": renamed(content) for name, content in classes.items()}


def add_to_driver(gateway: Any, jar: Path) -> None:
    """Add the jar to the class loader of the driver's JVM, so that Spark finds its classes by name."""
    loader = gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader()
    loader.addURL(gateway.jvm.java.io.File(str(jar)).toURI().toURL())


def load(gateway: Any, class_name: str) -> Any:
    """Return an instance of one of the jar's classes, created by its constructor without arguments. Call `add_to_driver` first."""
    jvm = gateway.jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    constructor = loader.loadClass(class_name).getDeclaredConstructor(gateway.new_array(jvm.java.lang.Class, 0))
    return constructor.newInstance(gateway.new_array(jvm.java.lang.Object, 0))
