"""What the operator must be allowed to do, and a look at start whether it is.

A missing right shows much later otherwise, in the middle of an upgrade, as one refused call. Here it is one clear line
in the log. `REQUIRED` is what the chart's Role gives; a test holds the two together.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from penstock_operator.errors import KubeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock_operator.kube.http import HttpCluster

log = logging.getLogger(__name__)

REQUIRED: Mapping[tuple[str, str], frozenset[str]] = {
    ("penstock.dev", "flinkjobs"): frozenset({"get", "list", "watch", "patch", "delete"}),
    ("penstock.dev", "flinksnapshots"): frozenset({"get", "list", "watch", "create", "patch", "delete"}),
    ("penstock.dev", "flinkjobs/status"): frozenset({"update"}),
    ("penstock.dev", "flinksnapshots/status"): frozenset({"update"}),
    ("penstock.dev", "flinkjobs/finalizers"): frozenset({"update"}),
    ("penstock.dev", "flinksnapshots/finalizers"): frozenset({"update"}),
    ("apps", "deployments"): frozenset({"get", "list", "watch", "create", "patch"}),
    ("apps", "controllerrevisions"): frozenset({"get", "list", "watch", "create", "delete"}),
    ("", "pods"): frozenset({"get", "list", "watch", "create", "patch", "delete"}),
    ("", "pods/log"): frozenset({"get"}),
    ("", "services"): frozenset({"get", "list", "watch", "create", "patch"}),
    ("", "configmaps"): frozenset({"get", "list", "create", "patch", "delete"}),
    ("", "serviceaccounts"): frozenset({"get", "create", "patch"}),
    ("", "secrets"): frozenset({"get", "create", "patch"}),
    ("", "events"): frozenset({"create"}),
    ("policy", "poddisruptionbudgets"): frozenset({"get", "create", "patch", "delete"}),
    ("networking.k8s.io", "networkpolicies"): frozenset({"get", "create", "patch", "delete"}),
    ("networking.k8s.io", "ingresses"): frozenset({"get", "create", "patch", "delete"}),
}
"""(API group, resource) → verbs, in every namespace that is watched."""


def missing(rules: Iterable[Mapping[str, Any]]) -> list[str]:
    """What `REQUIRED` has and the rules do not give. Rules limited to names do not count."""
    held = [rule for rule in rules if not rule.get("resourceNames")]
    return [
        f"{verb} {resource}{'.' + group if group else ''}"
        for (group, resource), verbs in REQUIRED.items()
        for verb in sorted(verbs)
        if not any(_gives(rule, group, resource, verb) for rule in held)
    ]


def _gives(rule: Mapping[str, Any], group: str, resource: str, verb: str) -> bool:
    def holds(key: str, value: str) -> bool:
        listed = rule.get(key) or ()
        return "*" in listed or value in listed

    return holds("apiGroups", group) and holds("resources", resource) and holds("verbs", verb)


async def check_access(cluster: HttpCluster, namespaces: Iterable[str]) -> list[str]:
    """Say in the log what is missing in each namespace; the lines are returned, too."""
    lines: list[str] = []
    for namespace in namespaces:
        try:
            rules = await cluster.own_rules(namespace)
        except KubeError as error:
            log.info("rights in %s cannot be looked up: %s", namespace, error)
            continue
        found = missing(rules)
        if found:
            lines.append(f"missing rights in namespace {namespace}: {', '.join(found)}")
    for line in lines:
        log.error("%s. Install the chart's RBAC (rbac.create), or give the operator's ServiceAccount these", line)
    return lines
