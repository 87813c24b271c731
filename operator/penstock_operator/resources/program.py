"""The program of a job whose manifest contains it: a script, and packages that its pods install before they start.

The script and the list of packages are files in the ConfigMap of the incarnation, next to `penstock.yaml`. The pods see them in the folder
`FOLDER`. An init container installs the packages into an empty volume of the pod, so each pod installs them once in its life. The volume
comes last on the import path. So a package cannot replace one that the engine uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock_operator.api.pod_template import INSTALLER
from penstock_operator.resources.names import CONF_DIR

if TYPE_CHECKING:
    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.resources.names import Owner

SCRIPT, REQUIREMENTS = "job.py", "requirements.txt"
_FOLDER = "program"
PACKAGES_VARIABLE = "PENSTOCK_PACKAGES"
"""Environment variable with the folder of the installed packages. The engine adds the folder to its import path."""
_PACKAGES = "/opt/penstock-packages"
_PIP = "/opt/penstock/pip.whl/pip"
"""The pip of the base image. The image has no installed pip, but it has pip's wheel."""


def entry(spec: FlinkJobSpec) -> str:
    """Return the program to run, inside a pod."""
    return spec.job.entry or f"{CONF_DIR}/{_FOLDER}/{SCRIPT}"


def files(spec: FlinkJobSpec) -> dict[str, str]:
    """Return the files of the program that the manifest contains, by name."""
    found = {}
    if spec.job.script is not None:
        found[SCRIPT] = spec.job.script
    if spec.job.requirements:
        found[REQUIREMENTS] = "".join(f"{line}\n" for line in spec.job.requirements)
    return found


def items(spec: FlinkJobSpec) -> list[dict[str, Any]]:
    """Return the items of a ConfigMap's projection that provide these files."""
    return [{"key": name, "path": f"{_FOLDER}/{name}"} for name in files(spec)]


def check_config_map(owner: Owner, spec: FlinkJobSpec, operation: str) -> dict[str, Any]:
    """Return the ConfigMap with the program for the pod that checks a revision. It has the name of the pod."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": owner.metadata(owner.check(operation), "check"),
        "immutable": True,
        "data": files(spec),
    }


def install(spec: FlinkJobSpec, pod: dict[str, Any], resources: dict[str, Any]) -> None:
    """Add the installation of the packages to the spec of a pod, whose only container is the main container."""
    if not spec.job.requirements:
        return
    (main,) = pod["containers"]
    volume = {"name": INSTALLER, "mountPath": _PACKAGES}
    pod["initContainers"] = [
        {
            "name": INSTALLER,
            "image": spec.image,
            "imagePullPolicy": spec.image_pull_policy,
            "command": [
                "python", _PIP, "install", "--quiet", "--no-cache-dir", "--disable-pip-version-check",
                "--target", _PACKAGES, "--requirement", f"{CONF_DIR}/{_FOLDER}/{REQUIREMENTS}",
            ],
            "env": [{"name": "HOME", "value": "/tmp"}],
            "resources": resources,
            "volumeMounts": [mount for mount in main["volumeMounts"] if mount["name"] != "work"] + [volume],
            "terminationMessagePolicy": "FallbackToLogsOnError",
        }
    ]  # fmt: skip
    main["volumeMounts"].append({**volume, "readOnly": True})
    main["env"].append({"name": PACKAGES_VARIABLE, "value": _PACKAGES})
    pod["volumes"].append({"name": INSTALLER, "emptyDir": {}})
