"""REST and the dashboard for a folder of archives. The command line calls it."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.common.config import options
from penstock.common.configuration import Configuration
from penstock.jobmanager.history.archive import Archives
from penstock.jobmanager.history.gateway import ArchiveGateway
from penstock.jobmanager.job.settings import object_store_options
from penstock.rest.server import RestServer
from penstock.rest.transport.tls import tls_files


def open_archives(folder: str, configuration: Mapping[str, str]) -> Archives:
    return Archives(folder, object_store_options(Configuration(configuration)))


def serve_history(folder: str, host: str, port: int, configuration: Mapping[str, str]) -> RestServer:
    """Start the server and return it.

    Raises:
        ClusterError: the address cannot be used.
        CertificateError: `rest.ssl.*` is enabled and names files that cannot be used.
    """
    conf = Configuration(configuration)
    token_file = configuration.get("security.rest.token-file") or None
    gateway = ArchiveGateway(open_archives(folder, configuration))
    hosts = conf.get(options.REST_ALLOWED_HOSTS)
    return RestServer(gateway, host, port, token_file, hosts, tls=tls_files(conf)).start()
