"""One redaction: it finds keys of secrets, and values of secrets in every text."""

from __future__ import annotations

import hashlib
import json
import time
from base64 import b64encode
from urllib.parse import quote, quote_plus

import pytest

from penstock.common.errors import ClusterError
from penstock.common.logs.redaction import Redaction, hide_own, is_secret, without_secrets
from penstock.rest.errors import error_lines

PASSWORD = "hunter22-x"


@pytest.mark.parametrize(
    "key",
    [
        "s3.secret-key", "s3.access-key", "fs.azure.account.key", "fs.azure.account.key.me.blob.core.windows.net", "apikey", "es.api-key",
        "API_KEY", "gcs.service-key", "google.service_account.key", "basic-auth", "basic.auth.user.info", "schema.registry.basic-auth.user-info",
        "sasl.jaas.config", "connector.sasl-jaas", "http-headers", "http.headers", "ssl.key.passphrase", "ssl.keystore.password", "private-key",
        "snowflake.private_key", "aws.credentials", "DB_PASSWD", "fs.auth-params", "connection-string", "oauth.token", "proxy-authorization",
    ],
)  # fmt: skip
def test_keys_of_secrets_are_recognized(key: str) -> None:
    assert is_secret(key)


@pytest.mark.parametrize(
    "key",
    [
        "security.rest.token-file", "ssl.private-key.path", "aws.credentials.provider", "state.backend.type", "execution.checkpointing.interval",
        "key.fields", "parallelism.default", "primary-key", "sasl.login.callback.handler.class", "security.delegation.tokens.enabled",
    ],
)  # fmt: skip
def test_other_keys_are_not_secret(key: str) -> None:
    assert not is_secret(key)


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://me:{PASSWORD}@db:5432/x", f"amqps://u:{PASSWORD}@h", f"redis://:{PASSWORD}@h:1/0", f"http://a:{PASSWORD}@[::1]:80/",
        f"jdbc:postgresql://u:{PASSWORD}@h/db", f"password={PASSWORD}", f"jdbc:x://h/db?user=u&password={PASSWORD}&ssl=true", f'"api-key": "{PASSWORD}"',
        f"{{'sasl.password': '{PASSWORD}'}}", f'org.apache.Login required username="u" password="{PASSWORD}";', f"Authorization: Bearer {PASSWORD}aa",
        f"AWS_SECRET_ACCESS_KEY={PASSWORD}", f"-----BEGIN RSA PRIVATE KEY-----\n{PASSWORD}\n-----END RSA PRIVATE KEY-----",
    ],
)  # fmt: skip
def test_a_text_that_names_its_secret_is_cleaned(text: str) -> None:
    cleaned = Redaction().clean(f"failed: {text} after 3 s")
    assert PASSWORD not in cleaned
    assert cleaned.startswith("failed: ")
    assert PASSWORD.encode() not in Redaction().clean_bytes(f"failed: {text}\xff".encode("latin-1"))


@pytest.mark.parametrize(
    "text",
    [
        "set rest.port=8081 or -1", "s3://bucket/a:b@c/file", "the token: take it from the secret", "send 'Authorization: Bearer <token>'",
        "security.rest.token-file=/run/secrets/token", "mail user@host", "http://host:8081/jobs?x=1", "time 10:20:30",
    ],
)  # fmt: skip
def test_other_texts_are_unchanged(text: str) -> None:
    assert Redaction().clean(text) == text


def test_secrets_inside_other_settings_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment has a URL with a password. An exception contains only the password."""
    monkeypatch.setenv("DATABASE_URL", f"postgresql://me:{PASSWORD}@db/x")
    monkeypatch.setenv("REGISTRY_BASIC_AUTH", "user:another-one")
    error = ClusterError(f"cannot log in with {PASSWORD}", remedy="or with user:another-one")
    assert PASSWORD not in str(error_lines(error))
    assert "another-one" not in str(error_lines(error))
    assert without_secrets({"note": f"it is {PASSWORD}"}) == {"note": "it is ******"}


def test_plain_words_are_not_secret() -> None:
    assert (
        Redaction.of({"feature.token": "true", "basic.auth.credentials": "USER_INFO"}).clean("it is true")
        == "it is true"
    )


def test_long_lines_take_linear_time() -> None:
    redaction = Redaction(["hunter22"])
    began = time.perf_counter()
    for text in (
        "a" * 200_000,
        "a=" * 100_000,
        "http://" * 30_000,
        "x:" * 100_000 + "@",
        "'" * 200_000,
        "-----BEGIN PRIVATE KEY-----" * 2_000,
    ):
        redaction.clean(text)
    assert time.perf_counter() - began < 20


def test_a_known_secret_is_found_in_every_form() -> None:
    """A Secret made with `echo` ends with a line break, which functions remove."""
    secret = "p\"ss\\w rd/1+'ü"
    hidden = Redaction([f"{secret}\n"])
    data = secret.encode()
    quoted = (repr(secret), repr(secret + "'"), repr(f'{secret} "'), ascii(secret), repr(data))
    encoded = (quote(secret, safe=""), quote(secret), quote_plus(secret), quote(secret).lower())
    for text in (secret, f"{secret}\n", *quoted, json.dumps(secret), json.dumps(secret, ensure_ascii=False), *encoded):
        assert "ss" not in hidden.clean(f"login with x-{text}-x")
    assert b64encode(data).decode() not in hidden.clean(f"Secret: {b64encode(data).decode()}")


KEY = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqh\nkiG9w0BAQEFAASC\n-----END PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    "text",
    [
        "line 2 is wrong: MIIEvQIBADANBgkqh", KEY.replace("\n", "\r\n"), KEY.replace("\n", "\n    "), repr({"key": KEY}),
        json.dumps(json.dumps({"key": KEY})),
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", [KEY, json.dumps({"type": "service_account", "private_key": KEY})])
def test_a_secret_of_several_lines_is_hidden_line_by_line(value: str, text: str) -> None:
    cleaned = Redaction([value]).hide(f"bad key: {text}")
    assert cleaned.startswith("bad key: ")
    assert "MIIEv" not in cleaned
    assert "kiG9w" not in cleaned


def test_short_lines_of_a_secret_are_unchanged() -> None:
    assert Redaction(['{\n  "a": 1,\n  "key": "hunter22"\n}']).hide('{"a": 1, "none": {}}') == '{"a": 1, "none": {}}'


def test_secrets_of_a_json_setting_are_hidden_with_their_spaces_and_commas() -> None:
    setting = json.dumps({"host": "db.shop", "login": [{"password": "my pass, word"}]})
    assert Redaction.of({"connection": setting}).hide("my pass, word at db.shop") == "****** at db.shop"
    for broken in ("{", "{" * 100_000, '{"password": 1}', '{"password": null}'):
        assert Redaction.of({"connection": broken}).hide("host") == "host"


def test_the_password_of_a_url_is_hidden_in_the_form_of_drivers() -> None:
    assert Redaction.of({"url": "postgres://me:p%40ss%2Fw@db/x"}).hide("login with p@ss/w, p%40ss%2Fw") == (
        "login with ******, ******"
    )


def test_many_lines_of_a_secret_do_not_slow_down_the_log() -> None:
    """A single pattern of all lines took 40 times as long."""
    lines = [hashlib.sha256(b"%d" % number).hexdigest() for number in range(500)]
    hidden = Redaction(["\n".join(lines)])
    began = time.perf_counter()
    for _ in range(500):
        hidden.hide("the checkpoint of the job was completed in 120 ms by the JobManager " * 20)
    assert time.perf_counter() - began < 3


def test_hiding_the_secrets_of_this_process_leaves_the_rest_of_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_API_TOKEN", "hunter22")
    assert hide_own("token=other, Bearer hunter22") == "token=other, Bearer ******"
