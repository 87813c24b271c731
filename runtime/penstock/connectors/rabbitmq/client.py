"""Connections to RabbitMQ, the meaning of its error replies, and whether a retry can help."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.common.errors import InvalidJob, PlatformError
from penstock.common.program.extras import import_extra
from penstock.connectors.rabbitmq.config import RMQConnectionConfig

LOGGER = logging.getLogger("penstock.connectors.rabbitmq")
PATIENCE_S = 30.0
_NOT_FOUND, _REFUSED, _PRECONDITION, _NOT_ALLOWED = 404, 403, 406, 530


def package() -> Any:
    """Return the module `pika`.

    Raises:
        InvalidJob: pika is not installed.
    """
    pika = import_extra("pika", "rabbitmq", "the RabbitMQ connector")
    log = logging.getLogger("pika")
    if log.level == logging.NOTSET:
        log.setLevel(logging.CRITICAL)  # pika also logs, as errors with stacks, every exception that it raises
    return pika


_WITHOUT_PASSWORD = re.compile(r"^(amqps?://[^:@/?#]+)@")
"""The start of a URI with a user and without a password. pika accepts only a URI with both or none."""


def errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that calls of pika raise."""
    return package().exceptions.AMQPError, OSError


def parameters(config: RMQConnectionConfig, kind: type[PlatformError], name: str) -> Any:
    """Return pika's connection parameters.

    Raises:
        InvalidJob: the URI is invalid.
        PlatformError: the password file cannot be read. The error's class is `kind`.
    """
    pika = package()
    secret = config.secret(kind)
    if config.uri:
        try:
            found = pika.URLParameters(_WITHOUT_PASSWORD.sub(r"\1:@", config.uri))
        except Exception as error:  # pika's parser can raise any exception
            raise InvalidJob(
                f"the uri of {config.shown} is invalid: {type(error).__name__}",
                remedy="write amqp://user@host:5672/vhost, the vhost '/' as %2F",
            ) from None  # the cause may contain the password
        if secret is not None:
            found.credentials = pika.PlainCredentials(found.credentials.username, secret)
    else:
        credentials = pika.PlainCredentials(config.user_name, config.password if secret is None else secret)
        found = pika.ConnectionParameters(config.host, config.port, config.virtual_host, credentials)
    wanted = config.requested_heartbeat
    found.heartbeat = lambda _connection, offered: min(wanted, offered) if wanted and offered else max(wanted, offered)
    found.socket_timeout = found.stack_timeout = config.connection_timeout / 1000
    if config.requested_channel_max:
        found.channel_max = config.requested_channel_max
    if config.requested_frame_max:
        found.frame_max = config.requested_frame_max
    found.client_properties = {"connection_name": f"penstock {name}"}
    return found


@contextmanager
def connected(config: RMQConnectionConfig, kind: type[PlatformError]) -> Iterator[Any]:
    """Yield a connection for checks at the start.

    Raises:
        PlatformError: the broker does not answer or rejects a request. The error's class is `kind`, and it names the remedy.
    """
    try:
        connection = package().BlockingConnection(parameters(config, kind, "check"))
        try:
            yield connection
        finally:
            if connection.is_open:
                connection.close()
    except errors() as error:
        raise explained(config, kind, error) from error


def refusal_of(channel: Any, request: Any) -> Exception | None:
    """Return the reason why the broker would reject the request, or None if it would accept it.

    `request` has one invalid argument. RabbitMQ checks arguments last, after existence and rights. So the request tests existence and
    rights, but neither reads nor writes anything.
    """
    exceptions = package().exceptions
    try:
        request(channel)
    except exceptions.ChannelClosedByBroker as error:
        return None if error.reply_code == _PRECONDITION else error
    return None


def is_passing(error: Exception) -> bool:
    """Return whether a retry may succeed without a user's action."""
    exceptions = package().exceptions
    text = str(error)
    if isinstance(error, exceptions.ProbableAuthenticationError):
        # pika raises this error if a connection ends during the login. If the broker refuses the password, it replies 403.
        return f"({_REFUSED})" not in text
    if isinstance(error, exceptions.ProbableAccessDeniedError):
        return f"({_NOT_ALLOWED})" not in text
    code = getattr(error, "reply_code", None)
    if isinstance(error, exceptions.ChannelClosedByBroker):
        if code == _NOT_FOUND:
            return "home node" in text
        if code == _REFUSED:
            return "exclusive use" in text
        if code == _PRECONDITION:
            return "timed out" in text
        return True
    return code != _NOT_ALLOWED


def explained(config: RMQConnectionConfig, kind: type[PlatformError], error: Exception) -> PlatformError:
    text = message_of(error)
    return kind(f"{config.shown}: {text}", remedy=_remedy(text))


def message_of(error: Exception) -> str:
    """Return the broker's message if it sent one."""
    code, words = getattr(error, "reply_code", None), getattr(error, "reply_text", None)
    if code is not None:
        return f"{code} {words}"
    text = " ".join((str(error) or repr(error)).split())
    return (text.partition("ConnectionClosedByBroker: ")[2].strip("'\",)( ") or text)[:500]


def _remedy(text: str) -> str:
    for words, remedy in _REMEDIES:
        if all(word in text for word in words):
            return remedy
    return "check that the broker runs, and check host, port, TLS and the network; the job retries when it fails over"


_REMEDIES = (
    (
        ("Login was refused",),
        "check user and password (set_password_file); 'guest' may only log in from the broker's own machine",
    ),
    (
        ("vhost", "not found"),
        "create the vhost (rabbitmqctl add_vhost), or choose another one with set_virtual_host; in a URI, write '/' as %2F",
    ),
    (("access to vhost",), "give the user access: rabbitmqctl set_permissions -p VHOST USER …"),
    (
        ("exclusive use",),
        "exactly once must be the only consumer of its queue: stop the other consumer, or set use_correlation_id=False",
    ),
    (
        ("no queue",),
        "declare the queue, or let the job do so: create_queue=True. If the queue was deleted during the job, its messages are lost",
    ),
    (("no exchange",), "declare the exchange, and bind queues to it"),
    (
        ("access to queue",),
        "grant the user the right to read the queue: rabbitmqctl set_permissions -p VHOST USER CONFIGURE WRITE READ",
    ),
    (
        ("access to exchange",),
        "grant the user the right to write to the exchange: rabbitmqctl set_permissions -p VHOST USER CONFIGURE WRITE READ",
    ),
    (("inequivalent arg",), "the queue exists with other arguments: leave create_queue out"),
    (
        ("timed out", "acknowledgement"),
        "checkpoints take longer than the broker's consumer_timeout: checkpoint more often, or increase the timeout",
    ),
    (("message size",), "send smaller messages, or raise the broker's max_message_size"),
)


class Outage:
    """The duration of an outage. It begins with the first failure and ends with a success."""

    def __init__(self, config: RMQConnectionConfig) -> None:
        self._patience = PATIENCE_S if config.automatic_recovery else 0.0
        self._noticed = self._patience + 3.0 * config.requested_heartbeat
        """How long to retry in seconds while another consumer exists. This consumer may belong to a lost machine whose
        heartbeats have not failed yet."""
        self._since: float | None = None

    def ended(self) -> None:
        self._since = None

    def is_too_long(self, error: Exception) -> bool:
        """Return whether to give up after this failure."""
        now = time.monotonic()
        self._since = self._since or now
        return now - self._since >= (self._noticed if "exclusive use" in str(error) else self._patience)
