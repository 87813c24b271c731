"""The few lines of Java the engine needs, compiled once by the compiler that Spark brings along.

Why Java at all: (1) Spark's ShuffledRDD cannot be told on which executor a partition should run, and a subtask must run
where its state is; (2) the pipelined shuffle can be had only from a dependency class, which no Python API reaches;
(3) one call over the gateway per epoch instead of some fifty. The sources are package data; Janino, which is among Spark's
jars, compiles them into a jar that is cached by the hash of sources and Spark version, so no Java compiler is needed.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
from importlib import resources
from pathlib import Path
from typing import Any

import pyspark


def _sources() -> dict[str, str]:
    folder = resources.files(__package__)
    return {f.name: f.read_text() for f in sorted(folder.iterdir(), key=lambda f: f.name) if f.name.endswith(".java")}


def cache_folder() -> Path:
    """Where what was made for the JVMs is kept; it is there when this returns."""
    root = os.environ.get("PENSTOCK_CACHE") or os.path.join(os.path.expanduser("~"), ".cache", "penstock")
    folder = Path(root) / "jvm"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}" / "jvm"
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def build_jar(gateway: Any) -> Path:
    """The jar with the engine's classes; compiled in the gateway's JVM if it is not in the cache."""
    sources = _sources()
    digest = hashlib.sha256(repr((sorted(sources.items()), pyspark.__version__)).encode()).hexdigest()[:16]
    packaged = Path(__file__).parent / f"penstock-{digest}.jar"
    if packaged.exists():
        return packaged
    jar = cache_folder() / f"penstock-{digest}.jar"
    if not jar.exists():
        classes = _compile(gateway, sources)
        handle, temporary = tempfile.mkstemp(dir=jar.parent)
        os.close(handle)
        with zipfile.ZipFile(temporary, "w") as archive:
            for name, content in classes.items():
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
    return {name: bytes(classes.get(name)) for name in list(classes.keySet())}


def load(gateway: Any, jar: Path, class_name: str) -> Any:
    """An instance of one of the jar's classes, by its argument-less constructor."""
    jvm = gateway.jvm
    urls = gateway.new_array(jvm.java.net.URL, 1)
    urls[0] = jvm.java.io.File(str(jar)).toURI().toURL()
    loader = jvm.java.net.URLClassLoader(urls, jvm.java.lang.Thread.currentThread().getContextClassLoader())
    constructor = loader.loadClass(class_name).getDeclaredConstructor(gateway.new_array(jvm.java.lang.Class, 0))
    return constructor.newInstance(gateway.new_array(jvm.java.lang.Object, 0))
