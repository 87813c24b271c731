"""What the processes of a cluster prove to each other, and seal what they send with: one secret.

A cluster always has one. `python job.py` makes one up; a master and its workers read the same file
(`security.spark.secret-file`). With it

* Spark's processes authenticate each other (SASL, `spark.authenticate`): driver, executors, and the pipelined exchanges
  (`jvm/SealedTransport.java`);
* TaskManagers and JobManager seal what they say to each other (`registration`);
* all that Spark's processes send goes through TLS 1.3. Its key and its certificate are derived from the secret, so every process makes
  the same ones by itself, takes no other, and nothing has to be distributed, or expires.

Why TLS and not Spark's own encryption (`spark.network.crypto`): that runs in Java, and our JVMs compile little
(`class_archive`): 9 MB/s of AES-GCM for a core. TLS uses BoringSSL, which is among Spark's jars.

The secret is in no command line: the driver has it from a file that only this user can read, executors from their
environment.
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
"""Characters. Whoever connects is shown the certificate, and could try short secrets against it."""
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Of the group of P-256 (SEC 2)."""
_REMEDY = "let it hold one line of at least 16 random characters, the same for the master and its workers"


def new_secret() -> str:
    return secrets.token_hex(32)


def read_secret(path: str) -> str:
    """The secret in a file.

    Raises:
        ClusterError: it cannot be read, or is too short to be one.
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
    """A cluster's secret, and the files that Spark's TLS reads."""

    secret: str
    private_key: Path
    certificate: Path

    @classmethod
    def create(cls, secret: str, folder: str | os.PathLike[str]) -> Credentials:
        """Write key and certificate into a folder that nobody else can read.

        Args:
            folder: is made if it is not there; must be this user's.
        """
        home = Path(folder)
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        home.chmod(0o700)
        key, certificate = derive_tls(secret)
        made = cls(secret, home / "key.pem", home / "certificate.pem")
        write_private(made.private_key, key)
        write_private(made.certificate, certificate)
        return made

    def spark_conf(self) -> dict[str, str]:
        """Settings of all processes of Spark's; the secret is not among them."""
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
        """Where an executor finds the secret."""
        return {"_SPARK_AUTH_SECRET": self.secret}


def derive_tls(secret: str) -> tuple[bytes, bytes]:
    """Private key and certificate that belong to a secret, in PEM: always the same ones.

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
    """A file that only this user can read, also while it is being written."""
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(content)
