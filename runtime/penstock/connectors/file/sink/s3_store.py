"""Parts on S3: multipart uploads, which are invisible until they are completed.

Records fill upload parts of at least 5 MiB. S3 refuses a smaller upload part unless it is the last. So at a barrier, the
rest of the records goes into the checkpoint, compressed. A successor continues the same upload, with part numbers that are higher than
the numbers that a zombie may still use. The completion names every part by number and ETag, so parts that it does not name have no effect.

S3 takes at most 10,000 part numbers per upload. A restore skips 64 of them for each attempt since the checkpoint. The writer
closes a part that has used up its numbers (by its size or by failovers), and begins a new part. The last number always takes
the rest of the data.
"""

from __future__ import annotations

import posixpath
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from penstock.common.errors import SinkError
from penstock.connectors.file.sink.part_file import finished_of
from penstock.connectors.file.sink.recoverable import FINISHED, PartStream, RecoverableStore, lost
from penstock.connectors.file.storage import StorageOptions, explained, file_system

_PART_BYTES = 5 << 20
_UPLOADS = 4
"""Maximum number of concurrent part uploads per subtask."""
_GAP = 64
"""Part numbers left free for each zombie at a restore. A zombie detects that it is superseded before it can use so many."""
_LAST_PART = 10_000
_RESERVE = 16
"""Number of remaining part numbers at which the writer closes the part."""
_MOST_ZOMBIES = 16
"""Maximum number of zombies that may continue the same checkpoint at the same time."""


def next_number(next: int, failovers: int) -> int:
    """Return the number of the next upload part after a restore.

    Args:
        next: the next number when the part was persisted.
        failovers: attempts since then.

    >>> next_number(10, 1), next_number(10, 2), next_number(9_990, 1)
    (74, 138, 10000)
    """
    return min(next + _GAP * (1 + (failovers - 1) % _MOST_ZOMBIES), _LAST_PART)


class S3Client:
    """The S3 API calls that the sink needs, through s3fs. Each `S3Store` has one client."""

    def __init__(self, options: StorageOptions) -> None:
        self._fs = file_system("s3://", options)
        self._pool = ThreadPoolExecutor(_UPLOADS, "s3-upload")

    def call(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        bucket, key = split_url(path)
        return dict(self._fs.call_s3(method, Bucket=bucket, Key=key, **arguments))

    def size_of(self, path: str) -> int:
        """Return the size of an object in bytes, or -1 if it does not exist."""
        try:
            return int(self.call("head_object", path)["ContentLength"])
        except FileNotFoundError:
            return -1

    def upload_part(self, path: str, upload: str, number: int, data: bytes) -> Future[list[Any]]:
        def run() -> list[Any]:
            with explained(path, "write", SinkError):
                answer = self.call("upload_part", path, UploadId=upload, PartNumber=number, Body=data)
            return [number, answer["ETag"]]

        return self._pool.submit(run)

    def uploads_below(self, base_path: str) -> list[tuple[str, str]]:
        """Return (key, upload id) of all unfinished uploads below a path."""
        bucket, prefix = split_url(base_path)
        found: list[tuple[str, str]] = []
        markers: dict[str, str] = {}
        while True:
            page = self._fs.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=prefix, **markers)
            found += [(entry["Key"], entry["UploadId"]) for entry in page.get("Uploads", [])]
            if not page.get("IsTruncated"):
                return found
            markers = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}


class S3Part(PartStream):
    def __init__(self, client: S3Client, path: str) -> None:
        self._client = client
        self._path = path
        self._upload: str | None = None
        self._next = 1
        self._parts: list[list[Any]] = []
        self._running: list[Future[list[Any]]] = []
        self._tail = bytearray()

    def write(self, data: bytes) -> None:
        self._tail += data
        self.size += len(data)
        while len(self._tail) >= _PART_BYTES and self._next < _LAST_PART:
            self._send(bytes(memoryview(self._tail)[:_PART_BYTES]))
            del self._tail[:_PART_BYTES]

    @property
    def is_full(self) -> bool:
        return self._next > _LAST_PART - _RESERVE

    def _send(self, data: bytes) -> None:
        if self._upload is None:
            with explained(self._path, "write", SinkError):
                self._upload = self._client.call("create_multipart_upload", self._path)["UploadId"]
        if self._next > _LAST_PART:
            raise SinkError(
                f"the last of the {_LAST_PART} upload parts that S3 allows for {self._path!r} is already used, and "
                f"{len(data)} bytes remain",
                remedy="restore an older checkpoint. The sink then ends the file before it has used all upload parts",
            )
        while len(self._running) >= _UPLOADS:
            self._parts.append(self._running.pop(0).result())
        self._running.append(self._client.upload_part(self._path, self._upload, self._next, data))
        self._next += 1

    def _wait(self) -> None:
        self._parts += [future.result() for future in self._running]
        self._running = []

    def persist(self) -> dict[str, Any]:
        self._wait()
        return {
            "path": self._path,
            "upload": self._upload,
            "parts": list(self._parts),
            "next": self._next,
            "size": self.size,
            "tail": pa.compress(bytes(self._tail), "zstd", asbytes=True),
            "tail_size": len(self._tail),
        }

    def restore(self, state: dict[str, Any], failovers: int) -> None:
        self._upload = state["upload"]
        self._parts = [list(part) for part in state["parts"]]
        self.size = state["size"]
        self._tail = bytearray(pa.decompress(state["tail"], state["tail_size"], "zstd", asbytes=True))
        self._next = next_number(state["next"], failovers) if self._parts else state["next"]
        if self._parts and self._parts[-1][0] >= self._next:  # a closed part of an earlier release used the last number
            self._next = self._parts[-1][0] + 1

    def close_for_commit(self) -> dict[str, Any]:
        if self._tail or not (self._parts or self._running):
            self._send(bytes(self._tail))
            self._tail.clear()
        self._wait()
        return {"kind": FINISHED, "path": self._path, "upload": self._upload, "parts": self._parts, "size": self.size}

    def dispose(self) -> None:
        for future in self._running:
            future.cancel()
        self._running = []


class S3Store(RecoverableStore):
    """A store with S3's API."""

    def __init__(self, options: StorageOptions) -> None:
        self._client = S3Client(options)

    def open(self, directory: str, name: str) -> PartStream:
        return S3Part(self._client, posixpath.join(directory, name))

    def resume(self, state: dict[str, Any], failovers: int) -> PartStream | None:
        path, upload = state["path"], state["upload"]
        with explained(path, "restore", SinkError):
            if self._client.size_of(path) >= state["size"]:
                return None
            if upload is not None and not self._exists(path, upload):
                raise lost(path, f"the upload {upload!r} was aborted or completed with fewer bytes")
        part = S3Part(self._client, path)
        part.restore(state, failovers)
        return part

    def commit(self, committable: dict[str, Any]) -> None:
        path, size = committable["path"], committable["size"]
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in committable["parts"]]
        with explained(path, "commit", SinkError):
            try:
                self._client.call(
                    "complete_multipart_upload",
                    path,
                    UploadId=committable["upload"],
                    MultipartUpload={"Parts": parts},
                )
            except Exception as error:
                found = self._client.size_of(path)
                if not _is_no_such_upload(error) or found != size:
                    there = f"; an object of {found} bytes exists, but the job wrote {size}" if found >= 0 else ""
                    raise SinkError(
                        f"cannot commit {path!r}: {error}{there}",
                        remedy="check whether a lifecycle rule of the bucket aborts uploads, and whether another job writes the same keys",
                    ) from error

    def abort(self, committable: dict[str, Any]) -> None:
        self._abort_upload(committable["path"], committable["upload"])

    def discard_unreferenced(
        self, base_path: str, owner: str, keep: list[dict[str, Any]], below: int | None = None
    ) -> None:
        kept = {piece["upload"] for piece in keep if piece.get("upload")}
        ours = finished_of(owner, below)
        bucket = split_url(base_path)[0]
        with explained(base_path, "clean up", SinkError):
            for key, upload in self._client.uploads_below(base_path):
                if upload not in kept and ours(posixpath.basename(key)):
                    self._abort_upload(f"s3://{bucket}/{key}", upload)

    def _abort_upload(self, path: str, upload: str) -> None:
        with explained(path, "abort", SinkError):
            try:
                self._client.call("abort_multipart_upload", path, UploadId=upload)
            except Exception as error:
                if not _is_no_such_upload(error):
                    raise

    def _exists(self, path: str, upload: str) -> bool:
        try:
            self._client.call("list_parts", path, UploadId=upload)
        except Exception as error:
            if _is_no_such_upload(error):
                return False
            raise
        return True


def split_url(path: str) -> tuple[str, str]:
    """Return the bucket and the key of a URL.
    >>> split_url("s3://lake/out/part-0")
    ('lake', 'out/part-0')
    """
    bucket, _, key = path.partition("://")[2].partition("/")
    return bucket, key


def _is_no_such_upload(error: BaseException | None) -> bool:
    while error is not None:
        if "NoSuchUpload" in str(error) or isinstance(error, FileNotFoundError):
            return True
        error = error.__cause__
    return False
