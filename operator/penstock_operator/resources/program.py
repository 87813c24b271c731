"""The program of a job whose image does not contain the program: a script, SQL statements or files, and packages that the pods install.

The script, the files of a source and the list of packages are in the ConfigMap of the incarnation, next to
`penstock.yaml`. The pods see them in the folders `_FOLDER` and `_FILES`. An init container fetches a file or a commit,
and another installs the packages, each into an empty volume of the pod. So each pod fetches and installs only once. An
image with the program is mounted as a volume. All these folders come last on the import path, so a package cannot
replace a package that the engine uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock_operator.api.pod_template import FETCHER, INSTALLER
from penstock_operator.resources.names import CONF_DIR

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock_operator.api.flinkjob import FlinkJobSpec, GitSource, Source
    from penstock_operator.resources.names import Owner

SCRIPT, SQL, REQUIREMENTS = "job.py", "job.sql", "requirements.txt"
_FOLDER, _FILES = "program", "source"
PACKAGES_VARIABLE = "PENSTOCK_PACKAGES"
"""Environment variable with the folder of the installed packages. The engine adds the folder to its import path."""
_SOURCE = "/opt/penstock-source"
_PACKAGES = "/opt/penstock-packages"
_PIP = "/opt/penstock/pip.whl/pip"
"""The pip of the base image. The image has no installed pip, but it has pip's wheel."""


def entry(spec: FlinkJobSpec) -> str:
    """Return the program to run, inside a pod."""
    if spec.job.entry is None:
        return f"{CONF_DIR}/{_FOLDER}/{SCRIPT if spec.job.sql is None else SQL}"
    if spec.job.source is None or not spec.job.entry.endswith((".py", ".sql")):
        return spec.job.entry
    return f"{_source_folder(spec.job.source)}/{spec.job.entry}"


def _source_folder(source: Source) -> str:
    return f"{CONF_DIR}/{_FILES}" if source.files else _SOURCE


def files(spec: FlinkJobSpec) -> dict[str, str]:
    """Return the files of the program that the manifest contains, by their key in a ConfigMap."""
    return {key: text for key, _, text in _files(spec)}


def items(spec: FlinkJobSpec) -> list[dict[str, Any]]:
    """Return the items of a ConfigMap's projection that provide these files."""
    return [{"key": key, "path": path} for key, path, _ in _files(spec)]


def _files(spec: FlinkJobSpec) -> Iterator[tuple[str, str, str]]:
    """Yield the key in a ConfigMap, the path below the folder of the configuration, and the content of each file."""
    if spec.job.script is not None:
        yield SCRIPT, f"{_FOLDER}/{SCRIPT}", spec.job.script
    if spec.job.sql is not None:
        yield SQL, f"{_FOLDER}/{SQL}", spec.job.sql
    if spec.job.requirements:
        yield REQUIREMENTS, f"{_FOLDER}/{REQUIREMENTS}", "".join(f"{line}\n" for line in spec.job.requirements)
    if spec.job.source is not None:
        for name, text in sorted(spec.job.source.files.items()):
            yield f"{_FILES}.{name}", f"{_FILES}/{name}", text


def check_config_map(owner: Owner, spec: FlinkJobSpec, operation: str) -> dict[str, Any]:
    """Return the ConfigMap with the program for the pod that checks a revision. The ConfigMap has the name of the pod."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": owner.metadata(owner.check(operation), "check"),
        "immutable": True,
        "data": files(spec),
    }


def install(spec: FlinkJobSpec, pod: dict[str, Any], resources: dict[str, Any]) -> None:
    """Add init containers to a pod that has only the main container. They fetch the program and install its packages."""
    folders = []
    source = spec.job.source
    if source is not None:
        _provide(spec, source, pod, resources)
        folders.append(_source_folder(source))
    if spec.job.requirements:
        command = [
            "python", _PIP, "install", "--quiet", "--no-cache-dir", "--disable-pip-version-check",
            "--target", _PACKAGES, "--requirement", f"{CONF_DIR}/{_FOLDER}/{REQUIREMENTS}",
        ]  # fmt: skip
        _add(spec, pod, resources, INSTALLER, _PACKAGES, {"command": command})
        folders.append(_PACKAGES)
    if folders:
        pod["containers"][0]["env"].append({"name": PACKAGES_VARIABLE, "value": ":".join(folders)})


def _provide(spec: FlinkJobSpec, source: Source, pod: dict[str, Any], resources: dict[str, Any]) -> None:
    """Add the volume with the source to a pod, and the init container that fetches a file or a commit into the volume.

    Add nothing if the files of the source are in the ConfigMap of the incarnation.
    """
    if source.url is not None and source.sha256 is not None:
        arguments = ["fetch", source.url, "--sha256", source.sha256, "--into", _SOURCE]
        _add(spec, pod, resources, FETCHER, _SOURCE, {"args": arguments})
    elif source.git is not None and source.git.commit is not None:
        git = source.git
        path = [f"--path={git.path}"] if git.path else []
        arguments = ["fetch", git.url, "--commit", str(git.commit), *path, "--into", _SOURCE]
        _add(spec, pod, resources, FETCHER, _SOURCE, {"args": arguments, "env": _credentials(git)})
    elif source.image is not None:
        (main,) = pod["containers"]
        main["volumeMounts"].append({"name": FETCHER, "mountPath": _SOURCE, "readOnly": True})
        pod["volumes"].append({"name": FETCHER, "image": {"reference": source.image, "pullPolicy": "IfNotPresent"}})


def _credentials(git: GitSource) -> list[dict[str, Any]]:
    if git.secret_name is None:
        return []
    return [
        {"name": f"PENSTOCK_GIT_{key.upper()}", "valueFrom": {"secretKeyRef": {"name": git.secret_name, "key": key}}}
        for key in ("username", "password")
    ]


def _add(
    spec: FlinkJobSpec, pod: dict[str, Any], resources: dict[str, Any], name: str, folder: str, program: dict[str, Any]
) -> None:
    """Add an init container that fills a volume. The main container and later init containers read the volume."""
    (main,) = pod["containers"]
    volume = {"name": name, "mountPath": folder}
    container = {
        "name": name,
        "image": spec.image,
        "imagePullPolicy": spec.image_pull_policy,
        **program,
        "env": [{"name": "HOME", "value": "/tmp"}, *program.get("env", [])],
        "resources": resources,
        "volumeMounts": [mount for mount in main["volumeMounts"] if mount["name"] != "work"] + [volume],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if "envFrom" in main:
        container["envFrom"] = main["envFrom"]
    pod.setdefault("initContainers", []).append(container)
    main["volumeMounts"].append({**volume, "readOnly": True})
    pod["volumes"].append({"name": name, "emptyDir": {}})
