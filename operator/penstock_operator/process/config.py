"""The operator's configuration, read from environment variables. The chart sets them. The defaults suit a laptop."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock_operator.api.limits.endpoints import AllowedEndpoints
from penstock_operator.api.limits.own_identity import OwnIdentity
from penstock_operator.api.limits.tenant_limits import TenantLimits
from penstock_operator.api.types import parse_duration
from penstock_operator.errors import OperatorError
from penstock_operator.kube.selector import Selector, parse_selector
from penstock_operator.reconcile.ownership import Shard
from penstock_operator.resources.children import Monitors
from penstock_operator.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping


class ConfigError(OperatorError):
    """Error of an environment variable that is not valid."""

    code = "InvalidConfiguration"


@dataclass(frozen=True)
class Config:
    """All settings of the operator."""

    namespaces: tuple[str, ...] = ()
    """PENSTOCK_WATCH_NAMESPACES: names of the watched namespaces, separated by commas. Empty means all namespaces."""
    operator_namespace: str = "default"
    """PENSTOCK_OPERATOR_NAMESPACE: namespace of the Lease."""
    app: str = "penstock-operator"
    """PENSTOCK_OPERATOR_APP: value of the label `app.kubernetes.io/name` of the operator's pods."""
    lease: str = "penstock-operator"
    """PENSTOCK_LEASE: name of the Lease."""
    selector: Selector = field(default_factory=Selector)
    """PENSTOCK_SELECTOR: label selector of the FlinkJobs that this operator manages. Empty means all. Other operators may
    manage the rest.
    """
    elect: bool = True
    """PENSTOCK_LEADER_ELECTION: set it to false only if no other operator can run."""
    port: int = 8085
    """PENSTOCK_PORT: port of /healthz, /readyz and /metrics."""
    rest_url: str = "http://{name}-rest.{namespace}.svc:8081"
    """PENSTOCK_REST_URL: URL of a job's master."""
    identity: str = field(default_factory=socket.gethostname)
    """PENSTOCK_POD_NAME: identity of this replica."""
    log_level: str = "INFO"
    """PENSTOCK_LOG_LEVEL: DEBUG, INFO, WARNING or ERROR."""
    log_format: str = "text"
    """PENSTOCK_LOG_FORMAT: text or json."""
    monitors: Monitors | None = None
    """PENSTOCK_JOB_POD_MONITORS: JSON with `interval` and `labels`. Not set: the operator creates no PodMonitors for
    jobs.
    """
    settings: Settings = field(default_factory=Settings)

    @property
    def shard(self) -> Shard:
        """The FlinkJobs that this operator manages, and the operator's name. Without leader election the operator needs
        no name, because no other operator runs.
        """
        return Shard(f"{self.operator_namespace}/{self.lease}" if self.elect else "", self.selector)


def from_environment(env: Mapping[str, str] | None = None) -> Config:
    """Read the configuration from the environment. Raise `ConfigError` with the name of a variable that is not valid."""
    env = os.environ if env is None else env
    defaults = Config()
    level = env.get("PENSTOCK_LOG_LEVEL", defaults.log_level).upper()
    if level not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        msg = f"PENSTOCK_LOG_LEVEL is {level!r}: use DEBUG, INFO, WARNING or ERROR"
        raise ConfigError(msg)
    rest_url = env.get("PENSTOCK_REST_URL", defaults.rest_url)
    try:
        rest_url.format(name="n", namespace="s")
    except (KeyError, IndexError, ValueError) as error:
        msg = f"PENSTOCK_REST_URL is {rest_url!r}: only {{name}} and {{namespace}} are allowed in braces"
        raise ConfigError(msg) from error
    return Config(
        namespaces=_words(env, "PENSTOCK_WATCH_NAMESPACES"),
        operator_namespace=env.get("PENSTOCK_OPERATOR_NAMESPACE", defaults.operator_namespace),
        app=env.get("PENSTOCK_OPERATOR_APP", defaults.app),
        lease=env.get("PENSTOCK_LEASE", defaults.lease),
        selector=_selector(env, "PENSTOCK_SELECTOR"),
        elect=_flag(env, "PENSTOCK_LEADER_ELECTION", default=True),
        port=_port(env, "PENSTOCK_PORT", defaults.port),
        rest_url=rest_url,
        identity=env.get("PENSTOCK_POD_NAME", defaults.identity),
        log_level=level,
        log_format=env.get("PENSTOCK_LOG_FORMAT", defaults.log_format),
        monitors=_monitors(env),
        settings=_settings(env),
    )


def _words(env: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in env.get(name, "").split(",") if word.strip())


_TIMES = {
    "PENSTOCK_RESYNC": "resync",
    "PENSTOCK_WATCH_INTERVAL": "watch",
    "PENSTOCK_PROGRESS_INTERVAL": "progress",
    "PENSTOCK_NOT_RUNNING_GRACE": "not_running_grace",
    "PENSTOCK_TEARDOWN_TIMEOUT": "teardown_timeout",
}


def _settings(env: Mapping[str, str]) -> Settings:
    times: dict[str, Any] = {name: _duration(env, variable) for variable, name in _TIMES.items() if variable in env}
    own_identity = OwnIdentity(
        locations=_words(env, "PENSTOCK_STORAGE_LOCATIONS"), endpoints=_words(env, "PENSTOCK_STORAGE_ENDPOINTS")
    )
    allowed = AllowedEndpoints(_words(env, "PENSTOCK_ALLOWED_ENDPOINTS"))
    tenants = TenantLimits(
        ingress_domains=_words(env, "PENSTOCK_INGRESS_DOMAINS"),
        ingress_classes=_words(env, "PENSTOCK_INGRESS_CLASSES"),
        ingress_annotations=_words(env, "PENSTOCK_INGRESS_ANNOTATIONS"),
        pod_annotations=_words(env, "PENSTOCK_POD_ANNOTATIONS"),
        git_servers=_words(env, "PENSTOCK_GIT_SERVERS"),
    )
    return replace(Settings(own_identity=own_identity, endpoints=allowed, tenants=tenants), **times)


def _monitors(env: Mapping[str, str]) -> Monitors | None:
    text = env.get("PENSTOCK_JOB_POD_MONITORS", "")
    if not text:
        return None
    try:
        return Monitors(**json.loads(text))
    except (ValueError, TypeError) as error:
        msg = f"PENSTOCK_JOB_POD_MONITORS is {text!r}: write JSON with interval and labels ({error})"
        raise ConfigError(msg) from error


def _duration(env: Mapping[str, str], name: str) -> timedelta:
    try:
        value = parse_duration(env[name])
    except ValueError as error:
        msg = f"{name}: {error}"
        raise ConfigError(msg) from error
    if not isinstance(value, timedelta) or value <= timedelta(0):
        msg = f"{name} is {env[name]!r}: write a duration like 30s"
        raise ConfigError(msg)
    return value


def _selector(env: Mapping[str, str], name: str) -> Selector:
    try:
        return parse_selector(env.get(name, ""))
    except ValueError as error:
        msg = f"{name}: {error}"
        raise ConfigError(msg) from error


def _flag(env: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = env.get(name, str(default)).lower()
    if value not in ("true", "false"):
        msg = f"{name} is {value!r}: use true or false"
        raise ConfigError(msg)
    return value == "true"


def _port(env: Mapping[str, str], name: str, default: int) -> int:
    value = env.get(name, str(default))
    if not value.isdigit() or not 0 <= int(value) < 65536:
        msg = f"{name} is {value!r}: use a port number from 0 to 65535"
        raise ConfigError(msg)
    return int(value)
