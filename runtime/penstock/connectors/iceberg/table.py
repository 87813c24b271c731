"""Open, inspect and create catalogs and their tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock.common.credentials.secret_file import read_secret
from penstock.common.errors import InvalidJob, PenstockError, PlatformError, SinkError
from penstock.common.program.extras import import_extra
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
    return import_extra(name, "iceberg", "Iceberg")


def catalog_properties(
    catalog: Mapping[str, str], options: StorageOptions, kind: type[PlatformError] = PlatformError
) -> dict[str, str]:
    """Return the properties for `load_catalog`. Keys with `.file` are read from files. The job's object store settings supply missing options.

    >>> catalog_properties({"uri": "sqlite:///x"}, {"key": "k", "endpoint_url": "http://s3"})
    {'s3.access-key-id': 'k', 's3.endpoint': 'http://s3', 'uri': 'sqlite:///x'}
    >>> catalog_properties({"client.region": "eu-west-1"}, {"region_name": "us-east-1"})
    {'client.region': 'eu-west-1'}

    Raises:
        PlatformError: a file cannot be read. The error's class is `kind`.
    """
    from_job = {
        key.removesuffix(_FROM_FILE): read_secret(value, key, kind) if key.endswith(_FROM_FILE) else value
        for key, value in catalog.items()
    }
    found = s3_settings(options, _S3)
    # PyIceberg prefers `s3.region` to `client.region`, wherever they come from.
    set_by_client = {name for name in found if f"client.{name.partition('.')[2]}" in from_job}
    return {name: value for name, value in found.items() if name not in set_by_client} | from_job


def open_catalog(catalog: Mapping[str, str], options: StorageOptions, kind: type[PlatformError]) -> Any:
    """Return the catalog with these properties.

    Raises:
        PlatformError: the catalog does not answer or refuses access. The error's class is `kind`.
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
            remedy="check its uri, warehouse and credentials, and that the catalog is reachable",
        ) from error


def open_table(
    catalog: Mapping[str, str], name: str, options: StorageOptions, kind: type[PlatformError], opened: Any = None
) -> Any:
    """Return a pyiceberg Table.

    Raises:
        PlatformError: the table does not exist, or the catalog does not answer. The error's class is `kind`.
    """
    try:
        return (opened or open_catalog(catalog, options, kind)).load_table(name)
    except PenstockError:
        raise
    except Exception as error:
        if type(error).__name__ in ("NoSuchTableError", "NoSuchNamespaceError", "NoSuchIcebergTableError"):
            raise kind(
                f"Iceberg table {name!r} does not exist in catalog {catalog.get('name', 'default')!r}",
                remedy="check the name ('namespace.table'), or create the table first (a sink does so with create=True)",
            ) from error
        raise kind(
            f"Iceberg table {name!r} cannot be opened: {type(error).__name__}: {str(error)[:1000]}",
            remedy="check that the catalog is reachable, its credentials, and the right to read the table's metadata",
        ) from error


def close_catalog(catalog: Any) -> None:
    """Close the connections of a catalog, if it has any. None means that the catalog was never opened."""
    engine = getattr(catalog, "engine", None)
    if engine is not None:
        engine.dispose()


def check_name(table: str) -> None:
    """Check the form of a table's name.

    Raises:
        InvalidJob: the name has no namespace.
    """
    if "." not in table:
        raise InvalidJob(f"Iceberg table {table!r}", remedy="write 'namespace.table'")


def exists(catalog: Mapping[str, str], name: str, options: StorageOptions) -> bool:
    """Return whether the table exists.

    Raises:
        SinkError: the catalog does not answer.
    """
    opened = open_catalog(catalog, options, SinkError)
    try:
        return bool(opened.table_exists(name))
    except Exception as error:
        raise SinkError(
            f"Iceberg catalog {opened.name!r} cannot check whether table {name!r} exists: {type(error).__name__}: "
            f"{str(error)[:1000]}",
            remedy="check that the catalog is reachable, and its credentials",
        ) from error


def schema_of(table: Any) -> pa.Schema:
    """Return the columns in Arrow's types, each with its field's id."""
    return package("pyiceberg.io.pyarrow").schema_to_pyarrow(table.schema(), include_field_ids=True)


def check_writable(table: Any) -> None:
    """Check that a sink may write to the table.

    Raises:
        InvalidJob: the table is partitioned by a field nested in a column.
    """
    schema = table.schema()
    top = {field.field_id for field in schema.fields}
    for field in table.spec().fields:
        if field.source_id not in top:
            raise InvalidJob(
                f"Iceberg table {'.'.join(table.name())!r} is partitioned by {schema.find_column_name(field.source_id)!r}, "
                "which is nested in a column",
                remedy="write to a table that is partitioned by top-level columns",
            )


def _shown(catalog: Mapping[str, str]) -> str:
    """Return the catalog's URI without user and password."""
    scheme, separator, rest = catalog.get("uri", "").partition("://")
    return scheme + separator + rest.rpartition("@")[2]
