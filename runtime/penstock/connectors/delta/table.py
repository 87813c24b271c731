"""How a Delta table is opened, looked at and made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.common.errors import InvalidJob, PenstockError, PlatformError
from penstock.common.extras import module_of_extra
from penstock.connectors.file.storage import StorageOptions, is_local, local_path, protocol_of
from penstock.connectors.lakehouse.object_store import s3_settings

_WRITABLE = {"appendOnly", "changeDataFeed", "deletionVectors", "domainMetadata", "invariants", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}  # fmt: skip
"""Features of tables under which plain files may be added."""

_S3 = {
    "key": "AWS_ACCESS_KEY_ID",
    "secret": "AWS_SECRET_ACCESS_KEY",
    "token": "AWS_SESSION_TOKEN",
    "endpoint_url": "AWS_ENDPOINT_URL",
    "region_name": "AWS_REGION",
}


def package(name: str = "deltalake") -> Any:
    return module_of_extra(name, "delta", "Delta Lake")


def location_of(path: str) -> str:
    return local_path(path) if is_local(path) else path.rstrip("/")


def storage_options_of(path: str, fsspec_options: StorageOptions, own: dict[str, str]) -> dict[str, str]:
    """delta-rs's options; those of the job's object store by their names there.

    >>> storage_options_of("s3://lake/t", {"key": "k", "endpoint_url": "http://s3"}, {})
    {'AWS_ACCESS_KEY_ID': 'k', 'AWS_ENDPOINT_URL': 'http://s3', 'AWS_ALLOW_HTTP': 'true'}
    >>> storage_options_of("s3://lake/t", {"endpoint_url": "https://s3"}, {"endpoint": "https://own"})
    {'endpoint': 'https://own'}
    """
    if protocol_of(path) not in ("s3", "s3a"):
        return dict(own)
    found = s3_settings(fsspec_options, _S3)
    if found.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        found["AWS_ALLOW_HTTP"] = "true"
    said = {_canonical(name) for name in own}
    return {name: value for name, value in found.items() if _canonical(name) not in said} | own


def _canonical(name: str) -> str:
    """Of the names that delta-rs has for one setting, in upper and lower case; of two that are given it takes either."""
    bare = name.lower().removeprefix("aws_")
    return {"endpoint": "endpoint_url", "token": "session_token", "default_region": "region"}.get(bare, bare)


def open_table(path: str, options: dict[str, str], kind: type[PlatformError], version: int | None = None) -> Any:
    """A DeltaTable.

    Raises:
        InvalidJob: the extra is missing.
        PlatformError: of this kind: there is no table, or it cannot be read.
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
            f"there is no Delta table in {path!r}",
            remedy="check the path, or make the table first (a sink makes it with create=True)",
        )
    return kind(
        f"Delta table {path!r} cannot be opened: {type(error).__name__}: {str(error)[:1000]}",
        remedy="check the path, the endpoint, the credentials and their rights (storage_options, or the job's object store settings)",
    )


def schema_of(table: Any) -> pa.Schema:
    """Columns in Arrow's types, partition columns too."""
    return pa.schema(table.schema().to_arrow())


def check_writable(table: Any, path: str, *, changes_rows: bool = False) -> None:
    """
    Raises:
        InvalidJob: files cannot simply be added, for rows would have to be checked or made; or rows may not be changed.
    """
    protocol, metadata = table.protocol(), table.metadata()
    if changes_rows and metadata.configuration.get("delta.appendOnly", "false").lower() == "true":
        raise InvalidJob(
            f"rows of Delta table {path!r} may not be changed: it has delta.appendOnly=true",
            remedy="leave key= out, so that rows are added; or set the table's property to false",
        )
    raw = [name for name in metadata.partition_columns if pa.types.is_binary(schema_of(table).field(name).type)]
    if changes_rows and raw:
        raise InvalidJob(
            f"Delta table {path!r} is partitioned by bytes, in {raw[0]!r}, which delta-rs escapes once more whenever it rewrites a file",
            remedy="partition it by a column of another type, such as the bytes in hexadecimal",
        )
    strange = set(protocol.writer_features or ()) - _WRITABLE
    rules = [key for key in metadata.configuration if key.startswith("delta.constraints.")]
    rules += [field.name for field in table.schema().fields if _is_ruled(field.metadata or {})]
    if metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
        strange.add("columnMapping")
    strange -= {"checkConstraints", "generatedColumns"} if not rules else set()
    if strange or rules:
        what = ", ".join(sorted(strange | set(rules)))
        raise InvalidJob(
            f"Delta table {path!r} cannot be written by this sink: it has {what}",
            remedy="write to a table without column mapping, constraints, generated and identity columns",
        )


def _is_ruled(metadata: dict[str, Any]) -> bool:
    return any(key in metadata for key in ("delta.invariants", "delta.generationExpression", "delta.identity.start"))


def create(path: str, schema: pa.Schema, partition_by: Sequence[str], options: dict[str, str]) -> None:
    """An empty table, unless there is one."""
    delta = package()
    delta.DeltaTable.create(
        path, delta.Schema.from_arrow(schema), mode="ignore", partition_by=list(partition_by), storage_options=options or None
    )  # fmt: skip
