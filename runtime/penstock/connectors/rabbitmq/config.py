"""`RMQConnectionConfig`: the broker's address, the user, and the timeouts of a connection."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from penstock.common.credentials.secret_file import read_secret
from penstock.common.errors import InvalidJob, PlatformError

MOST_PREFETCHED = 65_535
_PLACE = re.compile(r"(?P<where>([\w.\-]*|\[[\da-fA-F:.]+\])(:\d*)?)(/(?P<vhost>[^/?#]*))?([?#].*)?")


@dataclass(frozen=True, repr=False)
class RMQConnectionConfig:
    """The settings that `RMQConnectionConfig.Builder()` builds. They are picklable and contain a password only if it was given as text.
    Times are in ms, except for the heartbeat in s."""

    host: str = "localhost"
    port: int = 5672
    virtual_host: str = "/"
    user_name: str = "guest"
    password: str = "guest"
    uri: str = ""
    password_file: str = ""
    network_recovery_interval: int = 500
    automatic_recovery: bool = True
    topology_recovery: bool = True
    connection_timeout: int = 10_000
    requested_channel_max: int = 0
    requested_frame_max: int = 0
    requested_heartbeat: int = 30
    prefetch_count: int = 10_000

    def __repr__(self) -> str:
        return f"RMQConnectionConfig({self.shown})"

    def get_host(self) -> str:
        return self.host

    def get_port(self) -> int:
        return self.port

    def get_virtual_host(self) -> str:
        return self.virtual_host

    def get_user_name(self) -> str:
        return self.user_name

    def get_password(self) -> str:
        return self.password

    def get_uri(self) -> str:
        return self.uri

    def get_network_recovery_interval(self) -> int:
        return self.network_recovery_interval

    def is_automatic_recovery(self) -> bool:
        return self.automatic_recovery

    def is_topology_recovery(self) -> bool:
        return self.topology_recovery

    def get_connection_timeout(self) -> int:
        return self.connection_timeout

    def get_requested_channel_max(self) -> int:
        return self.requested_channel_max

    def get_requested_frame_max(self) -> int:
        return self.requested_frame_max

    def get_requested_heartbeat(self) -> int:
        return self.requested_heartbeat

    @property
    def shown(self) -> str:
        """Return the address without user and password."""
        if not self.uri:
            return f"RabbitMQ {self.host}:{self.port}{'' if self.virtual_host == '/' else ' ' + self.virtual_host}"
        place = _PLACE.fullmatch(re.sub(r".*@|\w+://", "", self.uri, count=1, flags=re.DOTALL))
        if place is None:  # any part of the text could be the password
            return "RabbitMQ"
        vhost = place["vhost"] or "%2F"
        return f"RabbitMQ {place['where'] or 'localhost'}{'' if vhost in ('%2F', '%2f') else ' ' + vhost}"

    def secret(self, kind: type[PlatformError]) -> str | None:
        """Return the current password of the file, or None if no file is set.

        Raises:
            PlatformError: the file cannot be read. The error's class is `kind`.
        """
        return read_secret(self.password_file, "password_file", kind) if self.password_file else None

    class Builder:
        """PyFlink's builder, with Penstock's additions."""

        def __init__(self) -> None:
            self._config = RMQConnectionConfig()

        def _with(self, **changes: object) -> RMQConnectionConfig.Builder:
            self._config = replace(self._config, **changes)  # type: ignore[arg-type]
            return self

        def set_host(self, host: str) -> RMQConnectionConfig.Builder:
            return self._with(host=host)

        def set_port(self, port: int) -> RMQConnectionConfig.Builder:
            return self._with(port=port)

        def set_virtual_host(self, vhost: str) -> RMQConnectionConfig.Builder:
            return self._with(virtual_host=vhost)

        def set_user_name(self, user_name: str) -> RMQConnectionConfig.Builder:
            return self._with(user_name=user_name)

        def set_password(self, password: str) -> RMQConnectionConfig.Builder:
            return self._with(password=password)

        def set_password_file(self, path: str) -> RMQConnectionConfig.Builder:
            """Set the file with the password. The file is read at every connection. So the password can change, and no payload contains it."""
            return self._with(password_file=path)

        def set_uri(self, uri: str) -> RMQConnectionConfig.Builder:
            """Set the amqp:// or amqps:// URI with host, port, vhost (`%2F`), user and password. Parts that are left out have defaults."""
            return self._with(uri=uri)

        def set_requested_heartbeat(self, requested_heartbeat: int) -> RMQConnectionConfig.Builder:
            """Set the heartbeat in seconds. The default is 30. Both sides drop a connection that is silent for twice this time."""
            return self._with(requested_heartbeat=requested_heartbeat)

        def set_requested_frame_max(self, requested_frame_max: int) -> RMQConnectionConfig.Builder:
            return self._with(requested_frame_max=requested_frame_max)

        def set_requested_channel_max(self, requested_channel_max: int) -> RMQConnectionConfig.Builder:
            return self._with(requested_channel_max=requested_channel_max)

        def set_network_recovery_interval(self, network_recovery_interval: int) -> RMQConnectionConfig.Builder:
            """Set the pause between two attempts to connect, in ms."""
            return self._with(network_recovery_interval=network_recovery_interval)

        def set_automatic_recovery(self, automatic_recovery: bool) -> RMQConnectionConfig.Builder:
            """Set whether to reconnect. If False, a lost connection causes a failover of the job at once."""
            return self._with(automatic_recovery=automatic_recovery)

        def set_topology_recovery_enabled(self, topology_recovery_enabled: bool) -> RMQConnectionConfig.Builder:
            """Ignore the setting. Only the consumer needs recovery, and it always recovers."""
            return self._with(topology_recovery=topology_recovery_enabled)

        def set_connection_timeout(self, connection_timeout: int) -> RMQConnectionConfig.Builder:
            """Set the timeout in ms."""
            return self._with(connection_timeout=connection_timeout)

        def set_prefetch_count(self, prefetch_count: int) -> RMQConnectionConfig.Builder:
            """Set the maximum number of messages that a consumer has received but not acknowledged. The default is 10,000."""
            return self._with(prefetch_count=prefetch_count)

        def build(self) -> RMQConnectionConfig:
            """Return the configuration with these settings.

            Raises:
                InvalidJob: a setting is out of its range.
            """
            config = self._config
            if not 1 <= config.prefetch_count <= MOST_PREFETCHED:
                raise InvalidJob(
                    f"prefetch_count={config.prefetch_count} is not between 1 and {MOST_PREFETCHED:,}",
                    remedy="set a number in this range. Without a limit, the source would load the whole queue into memory",
                )
            if config.uri and not config.uri.startswith(("amqp://", "amqps://")):
                raise InvalidJob(f"the uri of {config.shown} is invalid", remedy="write amqp://user@host:5672/vhost")
            if "@" in "".join(re.split(r"([/?#])", config.uri.partition("://")[2], maxsplit=1)[1:]):
                raise InvalidJob(
                    f"the uri of {config.shown} has a '/', '?' or '#' before an '@'",
                    remedy="in user and password, escape these characters: '/' is %2F, '?' is %3F, '#' is %23, '@' is %40",
                )
            if config.requested_heartbeat < 0 or config.connection_timeout <= 0:
                raise InvalidJob(
                    f"requested_heartbeat={config.requested_heartbeat}, connection_timeout={config.connection_timeout}: one of them is too small",
                    remedy="set requested_heartbeat to at least 0 s (0 means none), and connection_timeout to at least 1 ms",
                )
            return config
