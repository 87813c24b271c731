"""The few lines of Java the engine needs, compiled once by the compiler that Spark brings along.

Why Java at all: (1) Spark's ShuffledRDD cannot be told on which executor a partition should run, and a subtask must run
where its state is; (2) the pipelined shuffle can be had only from a dependency class, which no Python API reaches;
(3) one call over the gateway per epoch instead of some fifty; (4) Spark's own cluster managers start executors, and here
TaskManagers do. The sources are package data; Janino, which is among Spark's
jars, compiles them into a jar that is cached by the hash of sources and Spark version, so no Java compiler is needed.

The jar also has Spark's streaming shuffle under other names (`_RELOCATED`), as shaded jars have other people's classes:
they say `SealedTransport` where Spark's say `TransportContext`. `SealedShuffleManager.java` tells why.
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
"""With their inner classes."""
_SERVICES = {"META-INF/services/org.apache.spark.scheduler.ExternalClusterManager": b"penstock.SlotCluster\n"}
"""What Spark looks for by the interface alone."""
_RENAMED = {"org/apache/spark/network/TransportContext": "penstock/SealedTransport"}


def _sources() -> dict[str, str]:
    folder = resources.files(__package__)
    return {f.name: f.read_text() for f in sorted(folder.iterdir(), key=lambda f: f.name) if f.name.endswith(".java")}


def cache_folder() -> Path:
    """Where what was made for the JVMs is kept; it is there when this returns, and only this user's.

    Raises:
        ClusterError: it is somebody else's.
    """
    return private_folder.cache_folder("jvm")


def build_jar(gateway: Any) -> Path:
    """The jar with the engine's classes; compiled in the gateway's JVM if it is not in the cache."""
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
    # Iterators of py4j end by an exception of Java's, which PySpark translates, and fails at without a SparkContext.
    names = classes.keySet().toArray()
    return {name: bytes(classes.get(name)) for name in (names[index] for index in range(len(names)))}


def _relocate(gateway: Any, own: dict[str, bytes]) -> dict[str, bytes]:
    """Classes of Spark's shuffle as `penstock.shuffle`, and the engine's own, which then mean those.

    By the library for it that is among Spark's jars.
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

    made = {name: renamed(content) for name, content in own.items()}
    for name, other in _RENAMED.items():
        names.put(name, other)
    return made | {f"{names.get(name)}.class": renamed(content) for name, content in classes.items()}


def add_to_driver(gateway: Any, jar: Path) -> None:
    """Let Spark in the driver's JVM find the jar's classes by name."""
    loader = gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader()
    loader.addURL(gateway.jvm.java.io.File(str(jar)).toURI().toURL())


def load(gateway: Any, class_name: str) -> Any:
    """An instance of one of the jar's classes, by its argument-less constructor; after `add_to_driver`."""
    jvm = gateway.jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    constructor = loader.loadClass(class_name).getDeclaredConstructor(gateway.new_array(jvm.java.lang.Class, 0))
    return constructor.newInstance(gateway.new_array(jvm.java.lang.Object, 0))
