"""Certificates for tests: a CA that signs server and client certificates during the test."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

DAY = timedelta(days=1)


class Authority:
    """A certificate authority whose certificate is also in a file."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(f"test {name}")
        builder = _builder(self._name, self._name, self._key, timedelta(days=-1), 10 * DAY)
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        certificate = (
            builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.pem = certificate.public_bytes(Encoding.PEM)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(self.pem)

    def issue(self, *hosts: str, since: timedelta = timedelta(days=-1), until: timedelta = DAY) -> tuple[bytes, bytes]:
        """Return the certificate and its key in PEM. `since` and `until` are relative to the current time."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([_general(host) for host in hosts])
        builder = _builder(_name(hosts[0]), self._name, key, since, until)
        usage = x509.ExtendedKeyUsage([x509.OID_SERVER_AUTH, x509.OID_CLIENT_AUTH])
        certificate = (
            builder.add_extension(names, critical=False)
            .add_extension(usage, critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return certificate.public_bytes(Encoding.PEM), private

    def write(self, *hosts: str, name: str = "tls", until: timedelta = DAY) -> tuple[Path, Path]:
        """Write a certificate and its key under the names that Kubernetes uses: `tls.crt` and `tls.key`."""
        since = min(timedelta(days=-1), until - DAY)
        certificate, key = self.issue(*hosts, since=since, until=until)
        paths = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        for path, content in zip(paths, (certificate, key), strict=True):
            path.unlink(missing_ok=True)
            path.write_bytes(content)
        return paths


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, since: timedelta, until: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + since)
        .not_valid_after(now + until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
