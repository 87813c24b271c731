"""Limits on what a FlinkJob may set outside its pods: Ingresses, and annotations that other controllers act on. Pure
functions.

The author of a FlinkJob may have no rights on Ingresses. A controller may also give rights to every pod that has a
certain annotation. Examples are a cloud role, access to a network, or an unconfined sandbox. The operator would create
such Ingresses and pods for the author. So the platform lists in the chart what jobs may use. By default jobs get no
Ingress, and only annotations that are known to be harmless.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock_operator.api.limits.endpoints import is_listed
from penstock_operator.errors import Problem

if TYPE_CHECKING:
    from penstock_operator.api.flinkjob import FlinkJobSpec, Ingress

HARMLESS = (
    "prometheus.io/*",
    "cluster-autoscaler.kubernetes.io/safe-to-evict",
    "karpenter.sh/do-not-disrupt",
    "karpenter.sh/do-not-evict",
    "kubectl.kubernetes.io/default-container",
    "kubectl.kubernetes.io/restartedAt",
)
"""Annotations that give a pod no rights. They configure the scraping of metrics, eviction, and the default container
of kubectl.
"""
_HOST = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")
_PATH = re.compile(r"/[A-Za-z0-9/_.~%+|()$*?^\[\]-]*")
"""Pattern of an allowed path. It has no spaces, quotes, braces or semicolons, because some controllers copy the path
into their own configuration.
"""


@dataclass(frozen=True)
class TenantLimits:
    """The chart's settings `jobs.ingress`, `jobs.podAnnotations` and `jobs.gitServers`."""

    ingress_domains: tuple[str, ...] = ()
    """Allowed domains. A host must be one of these domains or a subdomain of one of them. If the list is empty, jobs
    get no Ingress."""
    ingress_classes: tuple[str, ...] = ()
    """Allowed values of ingress.className. A job that sets no class is always allowed."""
    ingress_annotations: tuple[str, ...] = ()
    """Allowed names of annotations. A name with `*` at the end is a prefix."""
    pod_annotations: tuple[str, ...] = ()
    """Names that are allowed in addition to `HARMLESS` and to names without a domain. A name with `*` at the end is a
    prefix.
    """

    git_servers: tuple[str, ...] = ()
    """Git servers that the operator may ask for the commit of a branch or tag: scheme, host and port. A host may start
    with `*.`. If the list is empty, the operator asks no server, and jobs must name a commit.
    """

    def git_problem(self, url: str) -> Problem | None:
        """Return a problem if the operator may not connect to this git server."""
        if is_listed(url, self.git_servers):
            return None
        return Problem(
            "spec.job.source.git.ref",
            f"the operator may not ask {url} for the commit of a branch or tag",
            "Set commit instead of ref, or have the platform add the server to jobs.gitServers of the operator's chart.",
        )

    def problems(self, spec: FlinkJobSpec) -> tuple[Problem, ...]:
        """Return a problem for each part of the spec that the platform has not opened, with the setting of the chart
        that opens it.
        """
        found: list[Problem] = []
        if spec.ingress is not None:
            found += self._ingress(spec.ingress)
        templates = {
            "spec.podTemplate": spec.pod_template,
            "spec.master.podTemplate": spec.master.pod_template,
            "spec.worker.podTemplate": spec.worker.pod_template,
        }
        for field, template in templates.items():
            found += self._annotations(template, field)
        return tuple(found)

    def _ingress(self, ingress: Ingress) -> Iterator[Problem]:
        host = ingress.host.lower()
        if not _HOST.fullmatch(host) or not any(_is_below(host, domain.lower()) for domain in self.ingress_domains):
            yield _not_allowed(
                "spec.ingress.host", ingress.host, "domains", "a host outside of the platform's domains for jobs"
            )
        if ingress.class_name is not None and ingress.class_name not in self.ingress_classes:
            yield _not_allowed("spec.ingress.className", ingress.class_name, "classes", "a class that jobs may not use")
        for name in ingress.annotations:
            if not _is_named(name, self.ingress_annotations):
                yield _not_allowed(f"spec.ingress.annotations.{name}", name, "annotations", "not allowed for jobs")
        if not _PATH.fullmatch(ingress.path):
            yield Problem(
                "spec.ingress.path",
                f"{ingress.path!r} has characters that paths of Ingresses do not need",
                "Use letters, digits, the characters / _ . ~ - % and those of regular expressions.",
            )

    def _annotations(self, template: Mapping[str, Any] | None, field: str) -> Iterator[Problem]:
        metadata = (template or {}).get("metadata")
        annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
        for name in annotations if isinstance(annotations, Mapping) else ():
            if "/" in str(name) and not _is_named(str(name), (*HARMLESS, *self.pod_annotations)):
                yield Problem(
                    f"{field}.metadata.annotations.{name}",
                    "not allowed: a controller may give pods with this annotation rights that jobs must not have",
                    "Remove it, or have the platform add it to jobs.podAnnotations of the operator's chart.",
                )


def _not_allowed(field: str, value: str, setting: str, reason: str) -> Problem:
    remedy = f"Choose another one, or have the platform add it to jobs.ingress.{setting} of the operator's chart."
    return Problem(field, f"{value!r} is {reason}", remedy)


def _is_below(host: str, domain: str) -> bool:
    """Return whether the host is the domain or a subdomain of it.

    >>> [_is_below(host, "jobs.example.com") for host in ("jobs.example.com", "a.jobs.example.com", "evil-jobs.example.com")]
    [True, True, False]
    """
    domain = domain.removeprefix("*.").strip(".")
    return bool(domain) and (host == domain or host.endswith(f".{domain}"))


def _is_named(name: str, patterns: tuple[str, ...]) -> bool:
    return any(name.startswith(p[:-1]) if p.endswith("*") else name == p for p in patterns)
