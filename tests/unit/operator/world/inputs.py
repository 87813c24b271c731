"""The ConfigMaps and Secrets that pods read, as the kubelet handles them.

The kubelet mounts the volumes of a pod once, before its first container starts. It refreshes mounted files while their source exists.
It reads the environment of a container at every start of the container. A missing source delays the start: the kubelet retries it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import yaml

from penstock_operator.api.pod_template import MAIN_CONTAINER
from penstock_operator.resources.configuration import CONFIG_FILE
from tests.unit.operator.world.kubernetes.pods import waiting_status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock_operator.kube.cluster import Manifest
    from tests.unit.operator.world.kubernetes.cluster import FakeCluster

Source = tuple[str, str, str]
"""Kind, name, and key; an empty key stands for all keys."""


@cache
def _parsed(text: str) -> dict[str, Any]:
    """Return the content of a `penstock.yaml`. A master that crashes again and again reads the same text each time."""
    found: dict[str, Any] = yaml.safe_load(text)
    return found


class PodInputs:
    """The kubelet's view of the ConfigMaps and Secrets of all pods."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._mounted: dict[str, str] = {}
        """Uid of a pod → its `penstock.yaml`; pods without such a file have an empty text."""

    def waiting(self, pod: Manifest) -> dict[str, Any] | None:
        """Return the status of a pod whose container cannot start yet, or None if it can start."""
        image, uid = pod["spec"]["containers"][0]["image"], pod["metadata"]["uid"]
        if uid not in self._mounted:
            if any(self._absent(source) for source in _volumes(pod)):
                return waiting_status("ContainerCreating", "", image)
            self._mounted[uid] = ""
        absent = next((reason for source in _environment(pod) if (reason := self._absent(source))), "")
        if not absent:
            return None
        waiting = waiting_status("CreateContainerConfigError", absent, image)
        if pod["status"].get("phase") != "Running":
            return waiting
        before = next((c for c in pod["status"].get("containerStatuses", ()) if c["name"] == MAIN_CONTAINER), {})
        own = {**before, "state": waiting["containerStatuses"][0]["state"]}
        return {**pod["status"], "conditions": [], "containerStatuses": [own]}

    def configuration(self, pod: Manifest) -> dict[str, Any]:
        """Return `penstock.yaml` of a pod whose volumes are mounted."""
        uid = pod["metadata"]["uid"]
        for kind, name, _ in _volumes(pod):
            found = self._cluster.one(kind, name) if kind == "ConfigMap" else None
            if found and CONFIG_FILE in found.get("data", {}):
                self._mounted[uid] = found["data"][CONFIG_FILE]
        return dict(_parsed(self._mounted[uid]))

    def variable(self, pod: Manifest, name: str) -> str:
        """Return an environment variable of a container that starts now."""
        variable = next(e for e in pod["spec"]["containers"][0]["env"] if e["name"] == name)
        source = variable["valueFrom"]["configMapKeyRef"]
        found = self._cluster.one("ConfigMap", source["name"])
        assert found is not None, f"{source['name']} is absent: `waiting` comes first"
        return str(found["data"][source["key"]])

    def _absent(self, source: Source) -> str:
        """Return the kubelet's message about an absent source; empty if the source exists."""
        kind, name, key = source
        found = self._cluster.one(kind, name)
        if found is None:
            return f'{kind.lower()} "{name}" not found'
        if key and key not in found.get("data", {}):
            return f"couldn't find key {key} in {kind} default/{name}"
        return ""


def _volumes(pod: Manifest) -> Iterator[Source]:
    for volume in pod["spec"].get("volumes", ()):
        for source in (volume, *volume.get("projected", {}).get("sources", ())):
            for field, kind, key in (("configMap", "ConfigMap", "name"), ("secret", "Secret", "secretName")):
                named = source.get(field, {})
                name = named.get(key) or named.get("name")
                if name and not named.get("optional"):
                    yield kind, name, ""


def _environment(pod: Manifest) -> Iterator[Source]:
    container = pod["spec"]["containers"][0]
    named = [(source, "") for source in container.get("envFrom", ())]
    named += [(variable.get("valueFrom", {}), "key") for variable in container.get("env", ())]
    for source, key in named:
        for field, kind in (("configMap", "ConfigMap"), ("secret", "Secret")):
            reference = source.get(f"{field}KeyRef" if key else f"{field}Ref")
            if reference and not reference.get("optional"):
                yield kind, reference["name"], reference.get(key, "")
