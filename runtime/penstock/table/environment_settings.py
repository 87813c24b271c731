"""`EnvironmentSettings`: the mode and the options of a `TableEnvironment`."""

from __future__ import annotations

from penstock.common.configuration import Configuration
from penstock.common.errors import InvalidJob


class EnvironmentSettings:
    """Settings of a `TableEnvironment`, from one of the static methods.

    >>> EnvironmentSettings.in_streaming_mode().is_streaming_mode()
    True
    """

    def __init__(self, configuration: Configuration | None = None) -> None:
        self._configuration = configuration

    @staticmethod
    def in_streaming_mode() -> EnvironmentSettings:
        return EnvironmentSettings()

    @staticmethod
    def in_batch_mode() -> EnvironmentSettings:
        """Refuse batch mode.

        Raises:
            InvalidJob: always. A streaming query over bounded tables ends with the same final rows.
        """
        raise InvalidJob(
            "SQL: batch mode is not supported",
            remedy="use EnvironmentSettings.in_streaming_mode(); a query over bounded tables ends, and its last changes are the result",
        )

    @staticmethod
    def new_instance() -> EnvironmentSettings.Builder:
        return EnvironmentSettings.Builder()

    def is_streaming_mode(self) -> bool:
        return True

    def get_configuration(self) -> Configuration | None:
        return self._configuration

    class Builder:
        """Builder of settings."""

        def __init__(self) -> None:
            self._configuration: Configuration | None = None

        def in_streaming_mode(self) -> EnvironmentSettings.Builder:
            return self

        def in_batch_mode(self) -> EnvironmentSettings.Builder:
            EnvironmentSettings.in_batch_mode()
            return self

        def with_configuration(self, config: Configuration) -> EnvironmentSettings.Builder:
            self._configuration = config
            return self

        def build(self) -> EnvironmentSettings:
            return EnvironmentSettings(self._configuration)
