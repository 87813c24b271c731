"""How a catalog and its tables are opened, looked at and made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock.common.errors import InvalidJob, PenstockError, PlatformError, SinkError
from penstock.common.extras import module_of_extra
from penstock.common.secret_file import read_secret
from penstock.connectors.file.storage import StorageOptions
from penstock.connectors.lakehouse.object_store import s3_settings

_FROM_FILE = ".file"
_S3 = {
    "key": "s3.access-key-id",
    "secret": "s3.secret-access-key",
    "token": "s3.session-token",
    "endpoint_url": "s3.endpoint",
    "region_name": "s3.region",
}


def package(name: str = "pyiceberg") -> Any:
    return module_of_extra(name, "iceberg", "Iceberg")


def catalog_properties(
    catalog: Mapping[str, str], options: StorageOptions, kind: type[PlatformError] = PlatformError
) -> dict[str, str]:
    """What `load_catalog` is given, with values that stand in files, and the job's object store where nothing is said.

    >>> catalog_properties({"uri": "sqlite:///x"}, {"key": "k", "endpoint_url": "http://s3"})
    {'s3.access-key-id': 'k', 's3.endpoint': 'http://s3', 'uri': 'sqlite:///x'}
    >>> catalog_properties({"client.region": "eu-west-1"}, {"region_name": "us-east-1"})
    {'client.region': 'eu-west-1'}

    Raises:
        PlatformError: of this kind: a file cannot be read.
    """
    own = {
        key.removesuffix(_FROM_FILE): read_secret(value, key, kind) if key.endswith(_FROM_FILE) else value
        for key, value in catalog.items()
    }
    found = s3_settings(options, _S3)
    # PyIceberg takes `s3.region` before `client.region`, whoever says them.
    said = {name for name in found if f"client.{name.partition('.')[2]}" in own}
    return {name: value for name, value in found.items() if name not in said} | own


def open_catalog(catalog: Mapping[str, str], options: StorageOptions, kind: type[PlatformError]) -> Any:
    """
    Raises:
        PlatformError: of this kind: it does not answer, or does not let us.
    """
    load = package("pyiceberg.catalog").load_catalog
    name = catalog.get("name", "default")
    try:
        properties = catalog_properties(catalog, options, kind)
        properties.pop("name", None)
        return load(name, **properties)
    except PenstockError:
        raise
    except Exception as error:
        raise kind(
            f"Iceberg catalog {name!r} ({catalog.get('type', '')} {_shown(catalog)}) cannot be opened: {type(error).__name__}: "
            f"{str(error)[:1000]}",
            remedy="check its uri, warehouse and credentials, and that it answers",
        ) from error


def open_table(
    catalog: Mapping[str, str], name: str, options: StorageOptions, kind: type[PlatformError], opened: Any = None
) -> Any:
    """A pyiceberg Table.

    Raises:
        PlatformError: of this kind: there is none, or the catalog does not answer.
    """
    try:
        return (opened or open_catalog(catalog, options, kind)).load_table(name)
    except PenstockError:
        raise
    except Exception as error:
        if type(error).__name__ in ("NoSuchTableError", "NoSuchNamespaceError", "NoSuchIcebergTableError"):
            raise kind(
                f"there is no Iceberg table {name!r} in catalog {catalog.get('name', 'default')!r}",
                remedy="check the name ('namespace.table'), or make the table first (a sink makes it with create=True)",
            ) from error
        raise kind(
            f"Iceberg table {name!r} cannot be opened: {type(error).__name__}: {str(error)[:1000]}",
            remedy="check that the catalog answers, its credentials, and the right to read the table's metadata",
        ) from error


def exists(catalog: Mapping[str, str], name: str, options: StorageOptions) -> bool:
    """
    Raises:
        SinkError: the catalog does not answer.
    """
    opened = open_catalog(catalog, options, SinkError)
    try:
        return bool(opened.table_exists(name))
    except Exception as error:
        raise SinkError(
            f"Iceberg catalog {opened.name!r} does not say whether there is a table {name!r}: {type(error).__name__}: "
            f"{str(error)[:1000]}",
            remedy="check that it answers, and its credentials",
        ) from error


def schema_of(table: Any) -> pa.Schema:
    """Columns in Arrow's types, each with its field's id."""
    return package("pyiceberg.io.pyarrow").schema_to_pyarrow(table.schema(), include_field_ids=True)


def check_writable(table: Any) -> None:
    """
    Raises:
        InvalidJob: it is partitioned by something within a column.
    """
    schema = table.schema()
    top = {field.field_id for field in schema.fields}
    for field in table.spec().fields:
        if field.source_id not in top:
            raise InvalidJob(
                f"Iceberg table {'.'.join(table.name())!r} is partitioned by {schema.find_column_name(field.source_id)!r}, "
                "which lies within a column",
                remedy="write to a table that is partitioned by its columns",
            )


def _shown(catalog: Mapping[str, str]) -> str:
    """Where it is, without user and password."""
    scheme, separator, rest = catalog.get("uri", "").partition("://")
    return scheme + separator + rest.rpartition("@")[2]
