"""Open, inspect and create Delta tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.common.errors import InvalidJob, PenstockError, PlatformError
from penstock.common.program.extras import import_extra
from penstock.connectors.file.storage import StorageOptions, is_local, local_path, protocol_of
from penstock.connectors.lakehouse.object_store import s3_settings

_WRITABLE = {"appendOnly", "changeDataFeed", "deletionVectors", "domainMetadata", "invariants", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}  # fmt: skip
"""Table features that allow a writer to add plain files."""

_S3 = {
    "key": "AWS_ACCESS_KEY_ID",
    "secret": "AWS_SECRET_ACCESS_KEY",
    "token": "AWS_SESSION_TOKEN",
    "endpoint_url": "AWS_ENDPOINT_URL",
    "region_name": "AWS_REGION",
}


def package(name: str = "deltalake") -> Any:
    return import_extra(name, "delta", "Delta Lake")


def location_of(path: str) -> str:
    return local_path(path) if is_local(path) else path.rstrip("/")


def storage_options_of(path: str, fsspec_options: StorageOptions, options_of_user: dict[str, str]) -> dict[str, str]:
    """Return options for delta-rs: the user's options, and the job's object store settings under delta-rs's names.

    >>> storage_options_of("s3://lake/t", {"key": "k", "endpoint_url": "http://s3"}, {})
    {'AWS_ACCESS_KEY_ID': 'k', 'AWS_ENDPOINT_URL': 'http://s3', 'AWS_ALLOW_HTTP': 'true'}
    >>> storage_options_of("s3://lake/t", {"endpoint_url": "https://s3"}, {"endpoint": "https://own"})
    {'endpoint': 'https://own'}
    """
    if protocol_of(path) not in ("s3", "s3a"):
        return dict(options_of_user)
    found = s3_settings(fsspec_options, _S3)
    if found.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        found["AWS_ALLOW_HTTP"] = "true"
    set_by_user = {_canonical(name) for name in options_of_user}
    return {name: value for name, value in found.items() if _canonical(name) not in set_by_user} | options_of_user


def _canonical(name: str) -> str:
    """Return the canonical, lower-case name of a setting. If a setting is given under two of its names, delta-rs picks either."""
    bare = name.lower().removeprefix("aws_")
    return {"endpoint": "endpoint_url", "token": "session_token", "default_region": "region"}.get(bare, bare)


def open_table(path: str, options: dict[str, str], kind: type[PlatformError], version: int | None = None) -> Any:
    """Return a DeltaTable.

    Raises:
        InvalidJob: the extra is missing.
        PlatformError: the table does not exist or cannot be read. The error's class is `kind`.
    """
    delta = package()
    try:
        return delta.DeltaTable(path, version=version, storage_options=options or None)
    except PenstockError:
        raise
    except Exception as error:
        raise unreachable(path, error, kind) from error


def exists(path: str, options: dict[str, str], kind: type[PlatformError]) -> bool:
    try:
        return bool(package().DeltaTable.is_deltatable(path, options or None))
    except PenstockError:
        raise
    except Exception as error:
        raise unreachable(path, error, kind) from error


def unreachable(path: str, error: Exception, kind: type[PlatformError]) -> PlatformError:
    if type(error).__name__ == "TableNotFoundError":
        return kind(
            f"{path!r} has no Delta table",
            remedy="check the path, or create the table first (a sink does so with create=True)",
        )
    return kind(
        f"Delta table {path!r} cannot be opened: {type(error).__name__}: {str(error)[:1000]}",
        remedy="check the path, the endpoint, the credentials and their rights (storage_options, or the job's object store settings)",
    )


def schema_of(table: Any) -> pa.Schema:
    """Return the columns in Arrow's types, including partition columns."""
    return pa.schema(table.schema().to_arrow())


def check_writable(table: Any, path: str, *, changes_rows: bool = False) -> None:
    """Check that a sink may write to the table.

    Raises:
        InvalidJob: the table forbids changes of rows, or it requires checked or generated values, which this sink
            cannot write.
    """
    protocol, metadata = table.protocol(), table.metadata()
    if changes_rows and metadata.configuration.get("delta.appendOnly", "false").lower() == "true":
        raise InvalidJob(
            f"rows of Delta table {path!r} cannot be changed, because it has delta.appendOnly=true",
            remedy="leave key= out to add rows; or set the table's property to false",
        )
    raw = [name for name in metadata.partition_columns if pa.types.is_binary(schema_of(table).field(name).type)]
    if changes_rows and raw:
        raise InvalidJob(
            f"Delta table {path!r} is partitioned by bytes, in {raw[0]!r}, and delta-rs escapes them again each time it rewrites a file",
            remedy="partition it by a column of another type, such as the bytes in hexadecimal",
        )
    strange = set(protocol.writer_features or ()) - _WRITABLE
    rules = [key for key in metadata.configuration if key.startswith("delta.constraints.")]
    rules += [field.name for field in table.schema().fields if _is_ruled(field.metadata or {})]
    if metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
        strange.add("columnMapping")
    strange -= {"checkConstraints", "generatedColumns"} if not rules else set()
    if strange or rules:
        features = ", ".join(sorted(strange | set(rules)))
        raise InvalidJob(
            f"Delta table {path!r} cannot be written by this sink: it has {features}",
            remedy="write to a table without column mapping, constraints, generated and identity columns",
        )


def _is_ruled(metadata: dict[str, Any]) -> bool:
    return any(key in metadata for key in ("delta.invariants", "delta.generationExpression", "delta.identity.start"))


def create(path: str, schema: Any, partition_by: Sequence[str], options: dict[str, str]) -> None:
    """Create an empty table unless it exists. `schema` is a schema of delta-rs."""
    package().DeltaTable.create(
        path, schema, mode="ignore", partition_by=list(partition_by), storage_options=options or None
    )  # fmt: skip
