"""The certificate of the REST API (`rest.ssl.*`): checked at the start, and loaded again when its files change.

cert-manager and Kubernetes renew a certificate by replacing the files of a mounted Secret. Every new connection uses the newest files
that match each other, so a renewal needs no restart. If the new files cannot be used, the server keeps its certificate and logs an error.
"""

from __future__ import annotations

import logging
import os
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography import x509

from penstock.common.config import options
from penstock.common.errors import CertificateError
from penstock.common.logs.throttle import Throttle

if TYPE_CHECKING:
    from penstock.common.configuration import Configuration

logger = logging.getLogger(__name__)

_Version = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class TlsFiles:
    """PEM files of a server.

    Args:
        certificate: the server's certificate, then the intermediate certificates.
        key: the private key of the certificate.
        ca: CAs that sign client certificates. None means that clients need no certificate.
    """

    certificate: str
    key: str
    ca: str | None = None

    def version(self) -> _Version:
        """Return a value that changes when a file changes. A missing file has a version too."""
        return tuple(_version(path) for path in (self.certificate, self.key, self.ca) if path)


def tls_files(conf: Configuration) -> TlsFiles | None:
    """Return the files that `rest.ssl.*` names, or None if TLS is disabled.

    Raises:
        CertificateError: TLS is enabled, and a file is not set.
    """
    if not conf.get(options.REST_SSL_ENABLED):
        return None
    certificate = _needed(conf, options.REST_SSL_CERTIFICATE_FILE.key, "the certificate of the REST API")
    key = _needed(conf, options.REST_SSL_KEY_FILE.key, "the private key of the certificate")
    if not conf.get(options.REST_SSL_CLIENT_AUTHENTICATION):
        return TlsFiles(certificate, key)
    return TlsFiles(certificate, key, _needed(conf, options.REST_SSL_CA_FILE.key, "the CAs of client certificates"))


def _needed(conf: Configuration, key: str, content: str) -> str:
    path = conf.to_dict().get(key)
    if path:
        return path
    raise CertificateError(
        f"rest.ssl.enabled is true, and {key} is not set", remedy=f"set {key} to a PEM file with {content}"
    )


class RenewedContext(ssl.SSLContext):
    """TLS context of a server that uses the newest files for each new connection.

    asyncio calls `wrap_bio` once for each connection. This class passes the call on to a context of the current files.

    Raises:
        CertificateError: the files cannot be used.
    """

    def __new__(cls, files: TlsFiles) -> RenewedContext:
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._version = files.version()
        self._current, self._until = load(files)
        self._throttle = Throttle()

    def wrap_bio(self, *args: Any, **named: Any) -> ssl.SSLObject:
        self._renew()
        return self._current.wrap_bio(*args, **named)

    def _renew(self) -> None:
        version = self._files.version()
        if version != self._version:
            self._version = version
            try:
                self._current, self._until = load(self._files)
            except CertificateError as error:
                logger.error(
                    "the REST API keeps its current certificate, valid until %s, because the new one cannot be used: %s",
                    self._until,
                    error,
                )
            else:
                logger.info(
                    "the REST API uses the renewed certificate of %s, valid until %s",
                    self._files.certificate,
                    self._until,
                )
        if self._until < datetime.now(UTC) and self._throttle.due():
            logger.error(
                "the certificate of the REST API has expired at %s: renew %s", self._until, self._files.certificate
            )


def load(files: TlsFiles) -> tuple[ssl.SSLContext, datetime]:
    """Return a context of the files, and the end of the certificate's validity.

    Raises:
        CertificateError: a file cannot be read, is not PEM, does not match the other file, or the certificate has expired.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    until = _checked(files.certificate)
    _content(files.key, options.REST_SSL_KEY_FILE.key)
    try:
        context.load_cert_chain(files.certificate, files.key, password=lambda: _refuse_passphrase(files.key))
    except (ssl.SSLError, OSError) as error:
        raise _unfit(files, error) from None
    if files.ca is not None:
        _content(files.ca, options.REST_SSL_CA_FILE.key)
        try:
            context.load_verify_locations(files.ca)
        except (ssl.SSLError, OSError) as error:
            raise CertificateError(
                f"the file {files.ca} holds no CA certificates: {error}",
                remedy="set rest.ssl.ca-file to a PEM file with the CAs that sign client certificates",
            ) from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context, until


def _checked(path: str) -> datetime:
    """Return the end of the validity of the first certificate in a file."""
    content = _content(path, options.REST_SSL_CERTIFICATE_FILE.key)
    try:
        certificate = x509.load_pem_x509_certificates(content)[0]
    except (ValueError, IndexError) as error:
        raise CertificateError(
            f"the file {path} has no certificate in PEM format: {error}",
            remedy="set rest.ssl.certificate-file to a file that begins with -----BEGIN CERTIFICATE-----",
        ) from None
    until, now = certificate.not_valid_after_utc, datetime.now(UTC)
    if until < now:
        raise CertificateError(
            f"the certificate in {path} has expired at {until}",
            remedy="renew the certificate. If cert-manager renews it, `kubectl describe certificate` shows the reason",
        )
    if certificate.not_valid_before_utc > now:
        logger.warning("the certificate in %s is not valid before %s", path, certificate.not_valid_before_utc)
    return until


def _content(path: str, key: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise CertificateError(
            f"the file {path} cannot be read: {error.strerror}",
            remedy=f"set {key} to a PEM file that this user can read",
        ) from None


def _unfit(files: TlsFiles, error: OSError) -> CertificateError:
    if getattr(error, "reason", "") == "KEY_VALUES_MISMATCH":
        return CertificateError(
            f"the private key in {files.key} does not belong to the certificate in {files.certificate}",
            remedy="use the key with which the certificate was requested",
        )
    return CertificateError(
        f"certificate {files.certificate} and key {files.key} cannot be used: {error}",
        remedy="use PEM format for both. The key begins with -----BEGIN PRIVATE KEY-----",
    )


def _refuse_passphrase(path: str) -> str:
    raise CertificateError(
        f"the private key in {path} has a passphrase",
        remedy=f"store it without a passphrase, readable for this user only: openssl pkey -in {path} -out KEY",
    )


def _version(path: str) -> tuple[int, int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return (found.st_mtime_ns, found.st_ino, found.st_size)
