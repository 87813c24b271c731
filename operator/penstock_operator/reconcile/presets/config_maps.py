"""Reader of a platform's defaults for FlinkJobs. See `reconcile.presets.defaults`.

Every pass over a FlinkJob needs the defaults. So the result of a read is cached for 30 s for all jobs of a namespace.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from penstock_operator.errors import Denied, Problem
from penstock_operator.kube.cluster import CONFIG_MAP
from penstock_operator.reconcile.presets.defaults import CONFIG_MAP_NAME, KEY, NOTHING_PRESET, Preset, preset

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock_operator.kube.cluster import Cluster

KEPT_FOR = 30.0
"""Lifetime of a cached result in seconds."""


class Presets(Protocol):
    """Source of the defaults."""

    async def of(self, namespace: str) -> Preset:
        """Return the defaults for a namespace. Raise a `KubeError` if the API server does not respond."""


class NoPresets:
    """Source without any defaults."""

    async def of(self, namespace: str) -> Preset:
        return NOTHING_PRESET


class ClusterPresets:
    """Source of defaults in the ConfigMaps of the operator's namespace and of the job's namespace."""

    def __init__(self, cluster: Cluster, own_namespace: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._cluster, self._own_namespace, self._monotonic = cluster, own_namespace, monotonic
        self._kept: dict[str, tuple[float, Preset]] = {}

    async def of(self, namespace: str) -> Preset:
        """Implement `Presets.of`."""
        now = self._monotonic()
        kept = self._kept.get(namespace)
        if kept is None or now - kept[0] >= KEPT_FOR:
            kept = self._kept[namespace] = (now, await self._read(namespace))
        return kept[1]

    async def _read(self, namespace: str) -> Preset:
        texts = {}
        for place in dict.fromkeys((self._own_namespace, namespace)):
            where = f"ConfigMap {place}/{CONFIG_MAP_NAME}"
            try:
                found = await self._cluster.get(CONFIG_MAP, place, CONFIG_MAP_NAME)
            except Denied as error:
                return Preset(
                    None,
                    Problem(
                        where,
                        f"it cannot be read: {error}",
                        "Give the operator the right to get this ConfigMap.",
                    ),
                )
            if found is not None:
                texts[where] = str((found.get("data") or {}).get(KEY, ""))
        return preset(texts)
