"""The option `-D key=value`, which sets a configuration key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.errors import UsageError
from penstock.common.errors import InvalidJob

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Definitions = Annotated[
    list[str] | None, typer.Option("-D", metavar="KEY=VALUE", help="Set a configuration key. Can be repeated.")
]


def parse_definitions(definitions: Sequence[str] | None) -> dict[str, str]:
    """Parse and check definitions of configuration keys.

    >>> parse_definitions(["parallelism.default=4", "a=b=c"])
    {'parallelism.default': '4', 'a': 'b=c'}

    Raises:
        UsageError: a definition has no `=`, its key is misspelt, or its value is wrong.
    """
    parsed = split_definitions(definitions)
    if parsed:
        from penstock.common.config.option_table import check_key, check_value

        for key, value in parsed.items():
            try:
                check_key(key)
                check_value(key, value)
            except InvalidJob as error:
                raise UsageError(f"-D {key}: {error.message}", remedy=error.remedy) from None
    return parsed


def split_definitions(definitions: Sequence[str] | None) -> dict[str, str]:
    """Parse definitions of configuration keys, and leave it to the engine to check them.

    Raises:
        UsageError: a definition has no `=`.
    """
    parsed: dict[str, str] = {}
    for definition in definitions or ():
        key, separator, value = definition.partition("=")
        if not separator or not key.strip():
            raise UsageError(f"-D {definition} is not KEY=VALUE", remedy="write -D parallelism.default=4")
        parsed[key.strip()] = value.strip()
    return parsed


def storage_options(configuration: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of the object store from `s3.…` keys. Options without such a key come from the environment."""
    if not configuration:
        return {}
    from penstock.common.configuration import Configuration
    from penstock.jobmanager.job.settings import object_store_options

    return object_store_options(Configuration.from_dict(dict(configuration)))
