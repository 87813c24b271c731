"""The secret of a cluster. The cluster's processes authenticate with the secret, and derive the keys of their
encryption from the secret.

Every cluster has a secret. `python job.py` generates one. A master and its workers read the same file
(`security.spark.secret-file`). The secret has these uses:

* Spark's processes authenticate each other (SASL, `spark.authenticate`): driver, executors, and the pipelined exchanges
  (`jvm/SealedTransport.java`).
* TaskManagers and the JobManager encrypt their messages to each other (`registration`).
* Spark's processes send everything through TLS 1.3. Every process derives the same key and certificate from the secret, and accepts no
  other certificate. No certificate needs to be distributed, and no certificate expires.

Spark also has its own encryption (`spark.network.crypto`). This encryption runs in Java, and these JVMs compile little code
(`class_archive`), so it reaches only 9 MB/s of AES-GCM per core. TLS uses BoringSSL, which Spark's jars include.

No command line contains the secret. The driver reads it from a file that only this user can read, and executors read it from
their environment.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from penstock.common.errors import ClusterError

SHORTEST_SECRET = 16
"""Minimum length of the secret, in characters. A client sees the certificate before it authenticates, and could guess a shorter
secret offline.
"""
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Order of the group of the curve P-256 (SEC 2)."""
_REMEDY = "write one line of at least 16 random characters into the file, the same for the master and its workers"


def new_secret() -> str:
    return secrets.token_hex(32)


def read_secret(path: str) -> str:
    """Return the secret in a file.

    Raises:
        ClusterError: the file cannot be read, or its content is too short.
    """
    try:
        secret = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ClusterError(f"the secret file {path} cannot be read: {error}", remedy=_REMEDY) from None
    if len(secret) < SHORTEST_SECRET:
        raise ClusterError(f"the secret in {path} has {len(secret)} characters", remedy=_REMEDY)
    return secret


@dataclass(frozen=True)
class Credentials:
    """Secret of a cluster, and the files that Spark's TLS reads."""

    secret: str
    private_key: Path
    certificate: Path

    @classmethod
    def create(cls, secret: str, folder: str | os.PathLike[str]) -> Credentials:
        """Write key and certificate into a directory that only this user can read.

        Args:
            folder: directory, which is created if it does not exist. It must belong to this user.
        """
        home = Path(folder)
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        home.chmod(0o700)
        key, certificate = derive_tls(secret)
        created = cls(secret, home / "key.pem", home / "certificate.pem")
        write_private(created.private_key, key)
        write_private(created.certificate, certificate)
        return created

    def spark_conf(self) -> dict[str, str]:
        """Return the settings for all Spark processes. They do not contain the secret."""
        return {
            "spark.authenticate": "true",
            "spark.network.crypto.enabled": "false",
            "spark.ssl.rpc.enabled": "true",
            "spark.ssl.rpc.openSslEnabled": "true",
            "spark.ssl.rpc.protocol": "TLSv1.3",
            "spark.ssl.rpc.privateKey": str(self.private_key),
            "spark.ssl.rpc.certChain": str(self.certificate),
            "spark.ssl.useNodeLocalConf": "true",
        }

    def environment(self) -> dict[str, str]:
        """Return the environment variables from which an executor reads the secret."""
        return {"_SPARK_AUTH_SECRET": self.secret}


def derive_tls(secret: str) -> tuple[bytes, bytes]:
    """Return the private key and the certificate that are derived from a secret, in PEM. The same secret always gives the same result.

    >>> derive_tls("s" * 16) == derive_tls("s" * 16)
    True
    >>> derive_tls("s" * 16)[0] == derive_tls("t" * 16)[0]
    False
    """
    material = HKDF(hashes.SHA256(), 48, salt=None, info=b"penstock cluster tls 1").derive(secret.encode())
    key = ec.derive_private_key(int.from_bytes(material, "big") % (_ORDER - 1) + 1, ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "penstock cluster")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2120, 1, 1, tzinfo=UTC))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256(), ecdsa_deterministic=True)
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem, certificate.public_bytes(Encoding.PEM)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only this user can read, even while it is being written."""
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(content)
