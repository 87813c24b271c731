"""The election that the settings of a master describe."""

from __future__ import annotations

import ssl
import uuid
from urllib.parse import urlsplit

from penstock.checkpoint.files.storage import CheckpointStorage
from penstock.checkpoint.leadership.fencing import new_owner
from penstock.checkpoint.store.retrying_store import RetryPolicy
from penstock.common.config import options
from penstock.common.configuration import Configuration
from penstock.common.errors import ClusterError
from penstock.common.job_id import JobID
from penstock.jobmanager.job.settings import object_store_options
from penstock.jobmanager.process.election.claims import Claims
from penstock.jobmanager.process.election.elector import ElectionTimes
from penstock.jobmanager.process.election.kubernetes_lease import KubernetesLease
from penstock.jobmanager.process.election.member import Member
from penstock.jobmanager.process.election.storage_claims import StorageClaims
from penstock.rest.transport.tls import tls_files

_POLICY = RetryPolicy(retry_for=1.0)
"""Retry policy of the election. The election itself tries again each second."""
_ANY_ADDRESS = ("0.0.0.0", "::", "")


def is_elected(settings: Configuration) -> bool:
    """Return whether the masters of this cluster elect a leader."""
    return bool(settings.get(options.HIGH_AVAILABILITY) != "none")


def job_id_of(settings: Configuration) -> str | None:
    """Return the job id that all masters of a cluster have in common, or None if the settings name no cluster.

    >>> job_id_of(Configuration({"high-availability.type": "file", "high-availability.cluster-id": "weather"}))
    '2cff21095b8f51d5b5d9ed36b7efdf6c'
    """
    name = settings.get(options.CLUSTER_ID)
    if not name or not is_elected(settings):
        return None
    return uuid.uuid5(uuid.NAMESPACE_URL, f"penstock:{name}").hex


def join(settings: Configuration, cluster: str | None, host: str) -> Member:
    """Return this process as a member of the election of a cluster.

    Args:
        cluster: name of the cluster: the job id, or the name of a session cluster.
        host: address at which other members reach this process.

    Raises:
        ClusterError: the settings do not say which cluster it is, or where its election is.
    """
    if not cluster:
        raise ClusterError(
            f"{options.HIGH_AVAILABILITY.key} is set, but the masters of this cluster have no common name",
            remedy=f"pass --job-id with {JobID.generate().digits} or other 32 hex digits, or set {options.CLUSTER_ID.key}, "
            "with the same value for each master",
        )
    times = ElectionTimes(
        settings.get(options.LEASE_DURATION).total_seconds(),
        settings.get(options.RETRY_PERIOD).total_seconds(),
        settings.get(options.RENEW_DEADLINE).total_seconds(),
    )
    if not 0 < 2 * times.interval_s <= times.lease_s:
        raise ClusterError(
            f"{options.RETRY_PERIOD.key} is {times.interval_s:g} s, but a lease of {times.lease_s:g} s needs at least two heartbeats",
            remedy=f"set it to at most half of {options.LEASE_DURATION.key}",
        )
    return Member(_claims(settings, cluster, times), new_owner(), host, times)


def _claims(settings: Configuration, cluster: str, times: ElectionTimes) -> Claims:
    if settings.get(options.HIGH_AVAILABILITY) == "kubernetes":
        name = settings.get(options.LEADER_LEASE) or f"{settings.get(options.CLUSTER_ID) or cluster}-leader"
        return KubernetesLease.in_cluster(name, settings.get(options.KUBERNETES_NAMESPACE), times.lease_s)
    folder = settings.get(options.HIGH_AVAILABILITY_DIRECTORY) or settings.get(options.CHECKPOINT_DIRECTORY)
    if not folder:
        raise ClusterError(
            f"{options.HIGH_AVAILABILITY.key} is file, but no folder for the election is set",
            remedy=f"set {options.HIGH_AVAILABILITY_DIRECTORY.key} to a folder that all masters can write, such as s3://bucket/ha",
        )
    return StorageClaims(CheckpointStorage(folder, cluster, object_store_options(settings), policy=_POLICY))


def reachable_url(url: str, settings: Configuration, host: str) -> str:
    """Return the URL at which other members reach the REST API of this process, if it listens at all addresses.

    >>> everywhere = Configuration({"rest.bind-address": "0.0.0.0"})
    >>> reachable_url("http://localhost:8081", everywhere, "10.0.0.7")
    'http://10.0.0.7:8081'
    >>> reachable_url("http://localhost:8081", Configuration(), "10.0.0.7")
    'http://localhost:8081'
    """
    if settings.get(options.REST_BIND_ADDRESS) not in _ANY_ADDRESS:
        return url
    found = urlsplit(url)
    return f"{found.scheme}://{f'[{host}]' if ':' in host else host}:{found.port}"


def tls_of_members(settings: Configuration) -> ssl.SSLContext | bool:
    """Return the TLS settings for requests to another member.

    The host name is not checked, because members know each other by address. The certificate must be the certificate of this process, or
    must come from a CA of this process or of the system.
    """
    files = tls_files(settings)
    if files is None:
        return True
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(files.certificate)
    if files.ca is not None:
        context.load_verify_locations(files.ca)
    context.load_cert_chain(files.certificate, files.key)
    return context
