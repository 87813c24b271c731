"""References of FlinkJobs to FlinkClusters."""

from __future__ import annotations

import re
from dataclasses import dataclass

CLUSTER_PATTERN = r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/)?[a-z]([-a-z0-9]{0,61}[a-z0-9])?$"
"""Pattern of `spec.cluster`: NAME, or NAMESPACE/NAME."""


@dataclass(frozen=True)
class ClusterRef:
    """A revision of a FlinkCluster. Number 0 stands for no particular revision."""

    namespace: str
    name: str
    number: int = 0

    @classmethod
    def named(cls, text: object, namespace: str) -> ClusterRef | None:
        """Parse `spec.cluster` of a FlinkJob in this namespace. Return None if it names no FlinkCluster.

        >>> ClusterRef.named("shared/etl", "team-a")
        ClusterRef(namespace='shared', name='etl', number=0)
        """
        if not isinstance(text, str) or not re.fullmatch(CLUSTER_PATTERN, text):
            return None
        space, _, name = text.rpartition("/")
        return cls(space or namespace, name)

    @classmethod
    def parse(cls, text: str | None) -> ClusterRef | None:
        """Parse the form that the operator stores. Return None for any other text.

        >>> ClusterRef.parse("shared/etl@3")
        ClusterRef(namespace='shared', name='etl', number=3)
        """
        found = re.fullmatch(r"([^/@]+)/([^/@]+)@([0-9]{1,9})", text or "")
        return cls(found[1], found[2], int(found[3])) if found else None

    @property
    def revision(self) -> str:
        """Name of the revision. The names of its objects start with it."""
        return f"{self.name}-{self.number}"

    def __str__(self) -> str:
        """Return the form that the operator stores."""
        return f"{self.namespace}/{self.name}@{self.number}"
