"""The watches. Only this module uses kopf. The module passes the events to the controller.

It uses none of kopf's handlers for create, update and delete, and no daemons, timers, finalizers, annotations or
peering. It only uses the watch streams, which are hard to implement. kopf restarts them, handles expired versions and
stale connections, and shuts them down in order.
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
"""API group by plural, for the kinds of objects that belong to FlinkJobs."""
LIST_CHUNK = 200
"""Maximum number of objects in one response of the API server."""
_KINDS = {kind.plural: kind for kind in KINDS.values()}


def build_registry(controller: Controller, credentials: Credentials) -> kopf.OperatorRegistry:
    """Return a registry that watches FlinkJobs, FlinkSnapshots, FlinkClusters, and the labelled children of FlinkJobs."""
    registry = kopf.OperatorRegistry()

    def login(settings: kopf.OperatorSettings, **kwargs: Any) -> Any:
        if credentials.in_cluster:
            return kopf.login_with_service_account(settings=settings, **kwargs)
        return kopf.login_with_kubeconfig(settings=settings, **kwargs)

    async def on_event(event: Any, resource: Any, **_: Any) -> None:
        controller.handle_event(
            _KINDS[resource.plural], event["object"], deleted=event["type"] == "DELETED", listed=not event["type"]
        )

    kopf.on.login(registry=registry)(login)
    for plural in ("flinkjobs", "flinksnapshots", "flinkclusters"):
        kopf.on.event(GROUP, VERSION, plural, registry=registry, id=plural)(on_event)
    for plural, group in _CHILDREN.items():
        kopf.on.event(group, "v1", plural, labels={JOB: kopf.PRESENT}, registry=registry, id=plural)(on_event)
    return registry


def build_settings(selector: str) -> kopf.OperatorSettings:
    """Return the settings of kopf.

    kopf then watches only objects with our label, and only the FlinkJobs that the selector selects. kopf posts no
    events and stores nothing. It reconnects when a stream is silent.
    """
    settings = kopf.OperatorSettings()
    for plural, group in _CHILDREN.items():
        settings.watching.label_selectors[group, plural] = JOB
    if selector:
        settings.watching.label_selectors[GROUP, "flinkjobs"] = selector
    settings.posting.enabled = False
    settings.peering.standalone = True
    # Without chunks, a stream that restarts would hold all objects of a kind in memory, with 20 times the size of the copy.
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
    """Watch until `stop` is set.

    Args:
        selector: label selector of the FlinkJobs.
        ready: set when kopf opens the watch streams.
    """
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
