"""Kafka with passwords, tokens, certificates and permissions: an exactly-once job with each of them, and clear errors without them."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import PenstockError, SinkError, SourceError
from penstock.connectors.core.source import ReadBounds, ReaderContext
from penstock.datastream.connectors.kafka import DeliveryGuarantee, KafkaOffsetsInitializer
from penstock.jobmanager.job.requests import Operation
from tests.in_process import environment, run, started, until
from tests.integration.kafka.support import (
    counting,
    eventually,
    fill,
    new_name,
    read,
    records,
    sink,
    source,
    topic,
    verdict,
)
from tools.servers.kafka import KafkaServer

pytestmark = pytest.mark.kafka

_MODULES = "org.apache.kafka.common.security"
_PREFIX = "listener.name.client"
SASL = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    f"{_PREFIX}.plain.sasl.jaas.config": f'{_MODULES}.plain.PlainLoginModule required user_penstock="s3cret" user_nobody="s3cret";',
    f"{_PREFIX}.scram-sha-256.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
    f"{_PREFIX}.scram-sha-512.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
    f"{_PREFIX}.oauthbearer.sasl.jaas.config": f'{_MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="x";',
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:penstock",
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """Start a broker that authenticates clients. `penstock` may do everything, and `nobody` nothing."""
    from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    root = tmp_path_factory.mktemp("guarded")
    with KafkaServer(root, properties=SASL, security="SASL_PLAINTEXT") as server:
        mechanisms = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        for mechanism in mechanisms:
            wanted = UserScramCredentialUpsertion("penstock", ScramCredentialInfo(mechanism, 4096), b"s3cret")
            for future in server.admin().alter_user_scram_credentials([wanted]).values():
                future.result(20)
        yield server


def copied(kafka: KafkaServer, folder: Path, properties: dict[str, str], count: int = 2_000) -> str:
    """Return the errors in the output of an exactly-once job with these properties."""
    reads, writes = topic(kafka, 2, "in"), topic(kafka, 2, "out")
    fill(kafka.inner_servers, reads, records(count), 2)
    env = environment(folder, **{"restart-strategy.type": "none"})
    servers = kafka.bootstrap_servers
    bounded = source(servers, reads).set_bounded(KafkaOffsetsInitializer.latest()).set_group_id("copied")
    counting(env, bounded.set_properties(properties).build(), sink(servers, writes).set_properties(properties).build())
    run(env)
    return verdict(kafka.inner_servers, writes, count)


def password(tmp_path: Path, text: str = "s3cret") -> str:
    path = tmp_path / "password"
    path.write_text(text + "\n")
    return str(path)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_password_from_a_file_opens_the_cluster(guarded: KafkaServer, tmp_path: Path, mechanism: str) -> None:
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "penstock",
        "sasl.password.file": password(tmp_path),
    }
    assert copied(guarded, tmp_path, properties) == ""


def unsigned_token(user: str) -> str:
    """Return a JSON web token that Kafka's unsecured validator accepts."""
    parts = ({"alg": "none"}, {"sub": user, "iat": int(time.time()), "exp": int(time.time()) + 600})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


def test_a_token_from_a_file_opens_the_cluster(guarded: KafkaServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(unsigned_token("penstock"))
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.file": str(token),
    }
    assert copied(guarded, tmp_path, properties) == ""


def test_a_secret_is_in_no_payload(tmp_path: Path) -> None:
    from penstock.connectors.kafka.client import resolved

    built = sink("any:1", "any").set_property("sasl.password.file", password(tmp_path, "hidden")).build()
    assert "hidden" not in repr(vars(built))
    assert resolved(built.properties)["sasl.password"] == "hidden"


WRONG = {
    "a wrong password": ({"sasl.mechanism": "PLAIN", "sasl.password": "wrong"}, "sasl.password"),
    "an unknown mechanism": ({"sasl.mechanism": "SCRAM-SHA-1"}, "sasl.mechanism"),
    "no security at all": ({"security.protocol": "PLAINTEXT"}, "security.protocol"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_credentials_are_an_error_before_the_job_starts(guarded: KafkaServer, case: str) -> None:
    wrong, named = WRONG[case]
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.username": "penstock",
        "sasl.password": "s3cret",
        **wrong,
    }
    servers = guarded.bootstrap_servers
    for border in (source(servers, "any").set_properties(properties), sink(servers, "any").set_properties(properties)):
        with pytest.raises(PenstockError) as refused:
            border.build().validate()
        assert named in refused.value.remedy + refused.value.message


def test_the_error_for_a_user_without_permission_names_the_missing_one(guarded: KafkaServer) -> None:
    name = topic(guarded)
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "nobody",
        "sasl.password": "s3cret",
    }
    with pytest.raises(SourceError, match=r"(?s)AUTHORIZATION.*ACL"):
        source(guarded.bootstrap_servers, name).set_properties(properties).build().validate()
    with pytest.raises(SinkError, match=r"(?s)AUTHORIZATION.*ACL"):
        sink(guarded.bootstrap_servers, name).set_properties(properties).build().validate()


def allow(kafka: KafkaServer, name: str, *operations: str) -> dict[str, str]:
    """Grant `nobody` permissions on a topic, and on nothing else. Return the properties of that user."""
    from confluent_kafka.admin import (
        AclBinding,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
        ResourceType,
    )

    rights = [
        AclBinding(
            ResourceType.TOPIC,
            name,
            ResourcePatternType.LITERAL,
            "User:nobody",
            "*",
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )
        for operation in operations
    ]
    for future in kafka.admin().create_acls(rights).values():
        future.result(20)
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "nobody",
        "sasl.password": "s3cret",
    }


def test_a_missing_permission_for_transactions_is_an_error_before_the_job_starts(guarded: KafkaServer) -> None:
    name = topic(guarded)
    properties = allow(guarded, name, "WRITE", "DESCRIBE")
    plain = sink(guarded.bootstrap_servers, name, DeliveryGuarantee.AT_LEAST_ONCE).set_properties(properties)
    eventually(lambda: _is_valid(plain.build()), 20, "the right")
    with pytest.raises(SinkError, match=r"(?s)TransactionalIdAuthorizationFailed.*the prefix of the transactional ids"):
        sink(guarded.bootstrap_servers, name).set_properties(properties).build().validate()


def test_a_missing_permission_to_commit_to_the_group_is_an_error_at_the_start(
    guarded: KafkaServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A missing permission is an error before the start. A running job only logs it, because it does not depend on these offsets."""
    name = topic(guarded)
    fill(guarded.inner_servers, name, records(3))
    builder = source(guarded.bootstrap_servers, name).set_properties(allow(guarded, name, "READ", "DESCRIBE"))
    eventually(lambda: _is_valid(builder.build()), 20, "the right")
    built = builder.set_group_id("not-mine").build()
    with pytest.raises(SourceError, match=r"(?s)group 'not-mine'.*GROUP_AUTHORIZATION_FAILED.*the right"):
        built.validate()
    reader = built.create_reader(ReaderContext(0, 1, "uid"))
    opened: Any = reader.open_split(built.create_enumerator().discover()[0], None)
    eventually(lambda: opened.read(ReadBounds()) is not None, 20, "records")
    reader.snapshot(1)
    reader.notify_checkpoint_complete(1)

    def is_reported() -> bool:
        opened.read(ReadBounds())
        return "offsets were not committed to group 'not-mine'" in caplog.text

    eventually(is_reported, 20, "the warning")
    assert opened.committed == -1
    reader.close()


def _is_valid(built: Any) -> bool:
    try:
        built.validate()
    except PenstockError:
        return False
    return True


def test_a_renewed_password_loses_no_record(tmp_path: Path) -> None:
    from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    def change(kafka: KafkaServer, secret: str) -> str:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        wanted = UserScramCredentialUpsertion("penstock", info, secret.encode())
        for future in kafka.admin().alter_user_scram_credentials([wanted]).values():
            future.result(20)
        return password(tmp_path, secret)

    with KafkaServer(tmp_path / "kafka", properties=SASL, security="SASL_PLAINTEXT") as kafka:
        reads, writes = topic(kafka, 2, "in"), topic(kafka, 2, "out")
        properties = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "penstock",
            "sasl.password.file": change(kafka, "first"),
        }
        settings = {"type": "fixed-delay", "fixed-delay.delay": "200 ms", "fixed-delay.attempts": "100"}
        env = environment(tmp_path, **{f"restart-strategy.{name}": value for name, value in settings.items()})
        servers = kafka.bootstrap_servers
        counting(
            env,
            source(servers, reads).set_properties(properties).build(),
            sink(servers, writes).set_properties(properties).build(),
        )
        master = started(env)
        fill(kafka.inner_servers, reads, records(500), 2)
        until(lambda: len(read(kafka.inner_servers, writes)) >= 500, master)
        change(kafka, "second")
        kafka.kill()  # this closes all connections that know the first password
        kafka.restart()
        fill(kafka.inner_servers, reads, records(500, 500), 2)
        until(lambda: len(read(kafka.inner_servers, writes)) >= 1_000, master)
        master.request(Operation("cancel"))
        master.wait(30)
        assert verdict(kafka.inner_servers, writes, 1_000) == ""


def certificates(folder: Path) -> None:
    """Create an authority and certificates that it has signed: `server.pem` (key and certificate), `client.pem` and `client.key`."""
    openssl = ["openssl"]

    def call(*arguments: str) -> None:
        subprocess.run([*openssl, *arguments], cwd=folder, check=True, capture_output=True)

    call(
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
        "-days",
        "2",
        "-subj",
        "/CN=ca",
    )
    (folder / "san").write_text("subjectAltName=IP:127.0.0.1\n")
    for name in ("server", "client"):
        call(
            "req",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            f"{name}.key",
            "-out",
            f"{name}.csr",
            "-subj",
            f"/CN={name}",
        )
        signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "san"]
        call("x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.crt")
    call("pkcs8", "-topk8", "-nocrypt", "-in", "server.key", "-out", "server.pk8")
    (folder / "server.pem").write_text((folder / "server.pk8").read_text() + (folder / "server.crt").read_text())


def test_the_cluster_requires_certificates_of_both_sides(tmp_path: Path) -> None:
    certificates(tmp_path)
    listener = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
        "ssl.client.auth": "required",
    }
    properties = {f"{_PREFIX}.{name}": value for name, value in listener.items()}
    with KafkaServer(tmp_path / "kafka", properties=properties, security="SSL") as kafka:
        trusts = {"security.protocol": "SSL", "ssl.ca.location": str(tmp_path / "ca.pem")}
        known = {
            "ssl.certificate.location": str(tmp_path / "client.crt"),
            "ssl.key.location": str(tmp_path / "client.key"),
        }
        assert copied(kafka, tmp_path, {**trusts, **known}) == ""
        for wrong in (trusts, {"security.protocol": "SSL", **known}):
            with pytest.raises(SourceError, match=r"(?i)ssl"):
                source(kafka.bootstrap_servers, new_name("any")).set_properties(wrong).build().validate()
