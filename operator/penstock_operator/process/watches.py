"""The only module that knows kopf: it watches, and tells the controller.

Nothing of kopf's edge-triggered machinery is used: no create/update/delete handlers, no daemons, timers, finalizers or
annotations of its own, no peering. What is used is what is hard to write: watch streams that start again, survive
expired versions and stale connections, and end in order.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

import kopf

from penstock_operator.api.version import GROUP, VERSION
from penstock_operator.kube.cluster import KINDS
from penstock_operator.resources.names import JOB

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from penstock_operator.kube.credentials import Credentials
    from penstock_operator.process.controller import Controller

log = logging.getLogger(__name__)

_CHILDREN = {"deployments": "apps", "controllerrevisions": "apps", "pods": "", "services": ""}
"""Plural → API group of what belongs to FlinkJobs."""
LIST_CHUNK = 200
"""Objects in one answer of the API server."""
_KINDS = {kind.plural: kind for kind in KINDS.values()}


def build_registry(controller: Controller, credentials: Credentials) -> kopf.OperatorRegistry:
    """Watch FlinkJobs, FlinkSnapshots, and the labelled children of FlinkJobs."""
    registry = kopf.OperatorRegistry()

    def login(settings: kopf.OperatorSettings, **kwargs: Any) -> Any:
        if credentials.in_cluster:
            return kopf.login_with_service_account(settings=settings, **kwargs)
        return kopf.login_with_kubeconfig(settings=settings, **kwargs)

    async def on_event(event: Any, resource: Any, **_: Any) -> None:
        controller.hear(
            _KINDS[resource.plural], event["object"], gone=event["type"] == "DELETED", listed=not event["type"]
        )

    kopf.on.login(registry=registry)(login)
    for plural in ("flinkjobs", "flinksnapshots"):
        kopf.on.event(GROUP, VERSION, plural, registry=registry, id=plural)(on_event)
    for plural, group in _CHILDREN.items():
        kopf.on.event(group, "v1", plural, labels={JOB: kopf.PRESENT}, registry=registry, id=plural)(on_event)
    return registry


def build_settings(selector: str) -> kopf.OperatorSettings:
    """Watch only what carries our label, of FlinkJobs what is selected, post nothing, store nothing, and never trust a silent stream."""
    settings = kopf.OperatorSettings()
    for plural, group in _CHILDREN.items():
        settings.watching.label_selectors[group, plural] = JOB
    if selector:
        settings.watching.label_selectors[GROUP, "flinkjobs"] = selector
    settings.posting.enabled = False
    settings.peering.standalone = True
    # Else all objects of a kind are in memory at once whenever a stream begins anew, twenty times as large as what is kept of them.
    settings.watching.chunk_size = LIST_CHUNK
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.watching.connect_timeout = 10
    settings.watching.inactivity_timeout = 70
    settings.scanning.disabled = True
    settings.persistence.finalizer = "penstock.dev/unused"
    return settings


async def watch(
    controller: Controller,
    credentials: Credentials,
    namespaces: Sequence[str],
    *,
    selector: str,
    stop: asyncio.Event,
    ready: asyncio.Event,
) -> None:
    """Watch until `stop`, of FlinkJobs those that the label selector selects; `ready` is set when the watch streams are being opened."""
    if not credentials.in_cluster and "KUBECONFIG" not in os.environ:
        log.info("watching with the default kubeconfig")
    await kopf.operator(
        registry=build_registry(controller, credentials),
        settings=build_settings(selector),
        standalone=True,
        clusterwide=not namespaces,
        namespaces=list(namespaces),
        stop_flag=stop,
        ready_flag=ready,
    )
