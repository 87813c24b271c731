"""Clients of a Kafka cluster: librdkafka (`confluent_kafka`) for records, aiokafka's protocol for calls that librdkafka lacks.

Both use one set of properties with librdkafka's names. Almost all of them are also Kafka's own names. The properties need not
contain secrets: `sasl.password.file` names a file that every process reads. So the secret is neither in the job's payload nor
in a log. When brokers refuse the old secret, the client reads the file again.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any

from penstock.common.credentials.secret_file import read_secret
from penstock.common.errors import InvalidJob, PenstockError
from penstock.common.logs.throttle import Throttle
from penstock.common.program.extras import import_extra

Properties = Mapping[str, str]

LOGGER = logging.getLogger("penstock.connectors.kafka")
CONNECT_S = 15.0
"""Timeout in seconds of a request to a cluster at the start."""
FROM_FILES = ("sasl.username", "sasl.password", "ssl.key.password", "ssl.keystore.password", "sasl.oauthbearer.token")
"""Properties that may be given as `NAME.file`."""
_JAVA_ONLY = {
    "sasl.jaas.config": "write sasl.mechanism, sasl.username and sasl.password (or sasl.password.file)",
    "ssl.truststore.location": "write ssl.ca.location with a PEM file",
    "ssl.truststore.password": "remove it: a PEM file in ssl.ca.location has no password",
    "key.deserializer": "remove it: the deserializer of the source converts messages to records",
    "value.deserializer": "remove it: the deserializer of the source converts messages to records",
    "key.serializer": "remove it: the record serializer of the sink converts records to messages",
    "value.serializer": "remove it: the record serializer of the sink converts records to messages",
}
_HAS_DIGIT = re.compile(r"\d")
_THREAD = re.compile(r"\[thrd:([^\]]*)\]")
"""The thread of librdkafka that logs a line. Its name is the broker's address."""
_MAX_KINDS = 100
_TOKEN_LIFE_S = 300.0
_REFUSED = ("_AUTHENTICATION", "_SSL")
SHUT_OUT_S = 30.0
"""Seconds for which a refused client retries. Two retries are at most ten seconds apart."""


class FailureFilter(logging.Filter):
    """Filter that lets one failure of each kind and broker pass per minute.

    librdkafka logs every failed connection. Each client retries each broker up to ten times a second.

    Args:
        clock: seconds of a monotonic clock.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self.throttles: dict[str, Throttle] = {}
        """Counters by kind and broker. The kind is the message without hosts, ports and times."""

    def clear(self) -> None:
        self.throttles.clear()

    def filter(self, record: logging.LogRecord) -> bool:
        if not isinstance(record.args, tuple) or record.args[:1] != ("FAIL",):
            return True
        text = record.getMessage()
        kind = " ".join(word for word in text.partition(" (after ")[0].split() if not _HAS_DIGIT.search(word))
        thread = _THREAD.search(text)
        broker = thread[1] if thread else ""
        if len(self.throttles) < _MAX_KINDS or f"{kind} {broker}" in self.throttles:
            kind = f"{kind} {broker}"  # if there are too many brokers, the rest of them share one line per kind
        elif len(self.throttles) >= 2 * _MAX_KINDS and kind not in self.throttles:
            self.clear()
        count = self.throttles.setdefault(kind, Throttle(clock=self._clock)).due()
        if count > 1:
            record.msg, record.args = "%s (%d such failures so far. One per minute is logged)", (text, count)
        return count > 0


LOGGER.addFilter(FailureFilter())


def package(name: str) -> Any:
    """Return a module of the extra.

    Raises:
        InvalidJob: the extra is not installed.
    """
    return import_extra(name, "kafka", "the Kafka connector")


def checked(properties: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties as text.

    Raises:
        InvalidJob: a property exists only in the Java client.
    """
    texts = {}
    for name, value in properties.items():
        if name in _JAVA_ONLY:
            raise InvalidJob(f"{name!r} is a property of Kafka's Java client", remedy=_JAVA_ONLY[name])
        texts[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts


def resolved(properties: Properties) -> dict[str, Any]:
    """Return the properties with the secrets from their files.

    Raises:
        InvalidJob: a file cannot be read.
    """
    given = dict(properties)
    for name in FROM_FILES:
        path = given.pop(f"{name}.file", None)
        if path is not None:
            given[name] = read_secret(path, f"{name}.file")
    return given


class Complaints:
    """The errors that a client has reported for its connections. They give the reason for a timeout.

    librdkafka retries for ever with the same password or certificate when brokers refuse it. So after each refusal `renew` gives
    the client the present content of the password file. After half a minute of refusals the client is replaced, and the new client reads
    all files again.
    """

    def __init__(self) -> None:
        self.last = ""
        self.refusal = ""
        """Last error of a broker that refused the client."""
        self._is_refused = False
        self._refusals = 0
        self._first_refusal = self._last_refusal = 0.0

    def __call__(self, error: Any) -> None:
        text = str(error.str())
        if "brokers are down" not in text or not self.last:
            self.last = text
        if error.name() in _REFUSED:
            now = time.monotonic()
            if not self._refusals or now - self._last_refusal > SHUT_OUT_S:
                self._refusals, self._first_refusal = 0, now
            self._refusals, self._last_refusal, self.refusal = self._refusals + 1, now, text
            self._is_refused = True

    def renew(self, client: Any, properties: Properties) -> None:
        """Give a refused confluent_kafka client the present password of its file, for the next connection.

        Call this method between two calls of the client, never in a callback. A client call inside a callback ends the process:
        confluent_kafka loses its thread's state, and asserts at the next callback that the state exists.
        """
        if self._is_refused and "sasl.password.file" in properties:
            try:
                given = resolved(properties)
            except InvalidJob as error:
                LOGGER.warning(
                    "the client keeps its present password, because its file cannot be read: %s", error.message
                )
            else:
                client.set_sasl_credentials(given.get("sasl.username", ""), given["sasl.password"])
        self._is_refused = False

    @property
    def is_shut_out(self) -> bool:
        """Return True if brokers have refused the client for so long that only a new client may succeed."""
        return self._refusals > 1 and self._last_refusal - self._first_refusal > SHUT_OUT_S


def librdkafka(properties: Properties, complaints: Complaints | None = None, **more: Any) -> dict[str, Any]:
    """Return the configuration of a confluent_kafka client. `more` (with `_` for `.`) overrides the properties."""
    given: dict[str, Any] = resolved(properties)
    token = given.pop("sasl.oauthbearer.token", None)
    if token is not None:
        given["oauth_cb"] = lambda _: _token(properties)
    given.setdefault("logger", LOGGER)
    if complaints is not None:
        given["error_cb"] = complaints
    given.update({name.replace("_", "."): value for name, value in more.items()})
    if "error.cb" in given:
        given["error_cb"] = given.pop("error.cb")
    return given


def _token(properties: Properties) -> tuple[str, float]:
    """Return a bearer token and its expiry in s since 1970, which a JSON web token contains."""
    token = resolved(properties)["sasl.oauthbearer.token"]
    return token, _expiry(token)


def _expiry(token: str) -> float:
    try:
        claims = token.split(".")[1]
        return float(json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"])
    except (IndexError, KeyError, ValueError):
        return time.time() + _TOKEN_LIFE_S


_OF_ANY_CLIENT = (
    "bootstrap.",
    "security.",
    "sasl.",
    "ssl.",
    "enable.ssl",
    "client.",
    "socket.",
    "oauth_cb",
    "error_cb",
    "log",
)


def administrating(properties: Properties, complaints: Complaints) -> dict[str, Any]:
    """Return the configuration of an admin client.

    Properties of consumers and producers are left out, because the client would report them.
    """
    given = librdkafka(properties, complaints)
    return {name: value for name, value in given.items() if name.startswith(_OF_ANY_CLIENT)}


def aiokafka(properties: Properties) -> dict[str, Any]:
    """Return the arguments of an aiokafka client."""
    given = resolved(properties)
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    arguments: dict[str, Any] = {
        "bootstrap_servers": given["bootstrap.servers"].split(","),
        "client_id": given.get("client.id", "penstock"),
        "security_protocol": protocol,
        "request_timeout_ms": 15_000,
    }
    if "SSL" in protocol.removeprefix("SASL_"):
        arguments["ssl_context"] = _ssl_context(given)
    if protocol.startswith("SASL"):
        mechanism = given.get("sasl.mechanism", given.get("sasl.mechanisms", "PLAIN")).upper()
        arguments["sasl_mechanism"] = mechanism
        arguments["sasl_plain_username"] = given.get("sasl.username")
        arguments["sasl_plain_password"] = given.get("sasl.password")
        if mechanism == "OAUTHBEARER":
            arguments["sasl_oauth_token_provider"] = _token_provider(properties)
    return arguments


def _ssl_context(given: Properties) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=given.get("ssl.ca.location"), cadata=given.get("ssl.ca.pem"))
        certificate = given.get("ssl.certificate.location")
        if certificate is not None:
            context.load_cert_chain(certificate, given.get("ssl.key.location"), given.get("ssl.key.password"))
    except (OSError, ssl.SSLError) as error:
        raise InvalidJob(
            f"the files of ssl.ca.location, ssl.certificate.location or ssl.key.location cannot be used: {error}",
            remedy="use PEM files, and set ssl.key.password (or ssl.key.password.file) for a key with a password",
        ) from error
    if given.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
        context.check_hostname = False
    if given.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _token_provider(properties: Properties) -> Any:
    base = package("aiokafka.abc").AbstractTokenProvider

    class Tokens(base):  # type: ignore[misc, valid-type]
        async def token(self) -> str:
            if "sasl.oauthbearer.token" not in resolved(properties):
                raise InvalidJob(
                    "the client that commits transactions reads its token only from a file, and sasl.oauthbearer.token.file is not set",
                    remedy="set sasl.oauthbearer.token.file to a file that another process renews",
                )
            return _token(properties)[0]

    return Tokens()


def explained(
    kind: type[PenstockError], problem: str, error: BaseException, properties: Properties, complaint: str = ""
) -> PenstockError:
    """Return an error that says what failed, where, why, and what to do."""
    inner = error.args[0] if error.args and hasattr(error.args[0], "code") else None
    name = "" if inner is None else str(inner.name())
    reason = str(error) if inner is None else f"{inner.str()} ({name})"
    if complaint and complaint not in reason:
        reason += f"; {complaint}"
    servers = properties.get("bootstrap.servers", "?")
    return kind(f"{problem} at {servers}: {reason}", remedy=_remedy(f"{name} {reason}", properties))


def _remedy(reason: str, properties: Properties) -> str:
    for words, remedy in _REMEDIES:
        if any(word.lower() in reason.lower() for word in words):
            return remedy(properties)
    return "check the log of the broker"


_REMEDIES: list[tuple[tuple[str, ...], Callable[[Properties], str]]] = [
    (
        ("sasl", "_AUTHENTICATION", "authentication failure"),
        lambda p: (
            f"check sasl.mechanism ({p.get('sasl.mechanism', 'not set')}), sasl.username and sasl.password (or the file of "
            "sasl.password.file) against the users of the broker"
        ),
    ),
    (
        ("ssl", "certificate"),
        lambda p: (
            "check ssl.ca.location, the certificate of the client, and the host name in the certificate of the broker"
        ),
    ),
    (
        ("AUTHORIZATION", "authorized"),
        lambda p: (
            "add an ACL that gives this user the right on the topic, the group or the prefix of the transactional ids"
        ),
    ),
    (
        ("(_FENCED)", "PRODUCER_FENCED", "INVALID_PRODUCER"),
        lambda p: (
            "no action is needed: a later attempt of the job has aborted the transaction and writes its records again"
        ),
    ),
    (
        ("_UNKNOWN_PARTITION",),
        lambda p: "correct the partitioner (the first partition is 0), or add partitions to the topic",
    ),
    (("UNKNOWN_TOPIC", "unknown topic"), lambda p: "create the topic, or correct its name"),
    (
        ("SIZE_TOO_LARGE", "too large"),
        lambda p: "raise message.max.bytes of the sink and max.message.bytes of the topic, or write smaller records",
    ),
    (
        ("disconnected", "_TRANSPORT", "_TIMED_OUT", "timed out", "ALL_BROKERS", "refused", "resolve", "bootstrap"),
        lambda p: (
            "check bootstrap.servers, that the brokers run, and security.protocol "
            f"({p.get('security.protocol', 'PLAINTEXT')}): a listener with another protocol closes connections without an error message"
        ),
    ),
]
