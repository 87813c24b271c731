"""The permissions that the operator needs, and a check at startup that it has them.

Without this check, a missing permission would fail one request much later, in the middle of an upgrade. The check
writes one clear line to the log. The chart's Role grants `REQUIRED`, and a test compares the two.
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
    ("penstock.dev", "flinkclusters"): frozenset({"get", "list", "watch", "patch"}),
    ("penstock.dev", "flinkjobs/status"): frozenset({"update"}),
    ("penstock.dev", "flinksnapshots/status"): frozenset({"update"}),
    ("penstock.dev", "flinkclusters/status"): frozenset({"update"}),
    ("penstock.dev", "flinkjobs/finalizers"): frozenset({"update"}),
    ("penstock.dev", "flinksnapshots/finalizers"): frozenset({"update"}),
    ("penstock.dev", "flinkclusters/finalizers"): frozenset({"update"}),
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
"""Verbs that the operator needs in every namespace that it watches, by API group and resource."""

OPTIONAL: Mapping[tuple[str, str], frozenset[str]] = {("", "namespaces"): frozenset({"get"})}
"""Verbs that only an operator of all namespaces has. Without them, selectors of namespaces only know the names."""


def missing(rules: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the permissions in `REQUIRED` that the rules do not grant. Rules that are limited to resource names are
    ignored.
    """
    unrestricted = [rule for rule in rules if not rule.get("resourceNames")]
    return [
        f"{verb} {resource}{'.' + group if group else ''}"
        for (group, resource), verbs in REQUIRED.items()
        for verb in sorted(verbs)
        if not any(_gives(rule, group, resource, verb) for rule in unrestricted)
    ]


def _gives(rule: Mapping[str, Any], group: str, resource: str, verb: str) -> bool:
    def holds(key: str, value: str) -> bool:
        listed = rule.get(key) or ()
        return "*" in listed or value in listed

    return holds("apiGroups", group) and holds("resources", resource) and holds("verbs", verb)


async def check_access(cluster: HttpCluster, namespaces: Iterable[str]) -> list[str]:
    """Log the missing permissions of each namespace. Return the same lines."""
    lines: list[str] = []
    for namespace in namespaces:
        try:
            rules = await cluster.own_rules(namespace)
        except KubeError as error:
            log.info("cannot check the rights in %s: %s", namespace, error)
            continue
        found = missing(rules)
        if found:
            lines.append(f"missing rights in namespace {namespace}: {', '.join(found)}")
    for line in lines:
        log.error(
            "%s. Install the chart's RBAC (rbac.create), or give the operator's ServiceAccount these rights", line
        )
    return lines
