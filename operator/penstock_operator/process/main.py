"""The command `penstock-operator`: run the operator, or clean up after it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from penstock_operator import __version__
from penstock_operator.api.types import parse_duration
from penstock_operator.errors import KubeError
from penstock_operator.kube.cluster import CONFIG_MAP, FLINKJOB, FLINKSNAPSHOT
from penstock_operator.kube.credentials import find_credentials
from penstock_operator.kube.http import HttpCluster
from penstock_operator.process.config import ConfigError, from_environment
from penstock_operator.process.orphans import HOLDS
from penstock_operator.redaction import without_secrets
from penstock_operator.resources.names import FINALIZER

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Run FlinkJobs on Kubernetes.")

Kubeconfig = Annotated[str | None, typer.Option(help="Path of a kubeconfig; default: KUBECONFIG or the pod's account.")]


@app.command()
def run(kubeconfig: Kubeconfig = None) -> None:
    """Run the operator until a signal stops it. PENSTOCK_* variables configure it."""
    from penstock_operator.process.lifecycle import Process

    try:
        config = from_environment()
        _log(config.log_level, config.log_format)
        credentials = find_credentials(kubeconfig)
    except (ConfigError, KubeError) as error:
        typer.echo(f"penstock-operator: {error}", err=True)
        raise typer.Exit(2) from None

    async def start() -> int:
        return await Process(config, credentials).run()

    raise typer.Exit(asyncio.run(start()))


@app.command()
def release(
    namespace: Annotated[str | None, typer.Option(help="Namespace to clean up. Default: all namespaces.")] = None,
    kubeconfig: Kubeconfig = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Apply the changes. Without this option, the command only shows them.")
    ] = False,
) -> None:
    """Remove the operator's finalizer from all FlinkJobs and FlinkSnapshots, so that they can be deleted without the
    operator.

    Use it before you uninstall the operator. It also deletes the ConfigMaps NAME-hold, which keep the objects of a
    job until its savepoint is taken. Kubernetes then deletes the pods together with their FlinkJob, without a
    savepoint. Checkpoints and savepoints are not deleted.
    """
    try:
        found = asyncio.run(_release(namespace, kubeconfig, do=yes))
    except KubeError as error:
        typer.echo(f"penstock-operator: {error}", err=True)
        raise typer.Exit(1) from None
    for line in found:
        typer.echo(line)
    if found and not yes:
        typer.echo("nothing was changed; add --yes to apply the changes")


@app.command()
def smoke(
    namespace: Annotated[str, typer.Option(help="Namespace of the operator and of the FlinkJob.")],
    lease: Annotated[str, typer.Option(help="Name of the operator's Lease.")],
    timeout: Annotated[str, typer.Option(help="Timeout of the whole test.")] = "5m",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Check an installation. PENSTOCK_SMOKE_SPEC may hold the spec of a FlinkJob as JSON, which is then run until it
    is Ready.
    """
    from penstock_operator.process.smoke import SmokeFailed
    from penstock_operator.process.smoke import smoke as check

    patience = parse_duration(timeout)
    if not isinstance(patience, timedelta):
        raise typer.BadParameter(timeout)
    spec = json.loads(os.environ.get("PENSTOCK_SMOKE_SPEC") or "{}")

    async def start() -> None:
        cluster = HttpCluster(find_credentials(kubeconfig))
        try:
            await check(cluster, namespace, lease, spec, patience, typer.echo)
        finally:
            await cluster.close()

    try:
        asyncio.run(start())
    except (SmokeFailed, KubeError) as error:
        typer.echo(f"penstock-operator: {error}", err=True)
        raise typer.Exit(1) from None


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


async def _release(namespace: str | None, kubeconfig: str | None, *, do: bool) -> list[str]:
    cluster, lines = HttpCluster(find_credentials(kubeconfig)), []
    try:
        for kind in (FLINKJOB, FLINKSNAPSHOT):
            for manifest in await cluster.list(kind, namespace):
                meta = manifest["metadata"]
                kept = [f for f in meta.get("finalizers") or () if f != FINALIZER]
                if kept == list(meta.get("finalizers") or ()):
                    continue
                lines.append(f"{kind.name} {meta['namespace']}/{meta['name']}")
                if do:
                    patch = {"metadata": {"finalizers": kept, "resourceVersion": meta["resourceVersion"]}}
                    await cluster.merge(kind, meta["namespace"], meta["name"], patch)
        for manifest in await cluster.list(CONFIG_MAP, namespace, HOLDS):
            meta = manifest["metadata"]
            lines.append(f"ConfigMap {meta['namespace']}/{meta['name']}")
            if do:
                await cluster.delete(CONFIG_MAP, meta["namespace"], meta["name"])
    finally:
        await cluster.close()
    return lines


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": without_secrets(record.getMessage()),
        }
        if record.exc_info:
            entry["exception"] = without_secrets(self.formatException(record.exc_info))
        return json.dumps(entry)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))


def _log(level: str, style: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    text = _Text("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    handler.setFormatter(_Json() if style == "json" else text)
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for chatty in ("httpx", "httpcore", "aiohttp", "kopf", "botocore", "aiobotocore", "s3fs", "fsspec", "asyncio"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


if __name__ == "__main__":
    app()
