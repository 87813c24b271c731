"""The bundles and the running programs of a session cluster, in storage that outlives its process.

    <folder>/bundles/<digest>/<file name>    the bundle
    <folder>/deleted/<digest>_<file name>    mark of a bundle that a client has deleted while a program uses it
    <folder>/programs/<id>.json              a program that has not ended (`ProgramSpec`)
    <folder>/graphs/<id>                     the graph of such a program, if a client has sent it (`create_remote_environment`)

When a session starts, it runs all stored programs again. Other users may have written files into the storage, so each file is checked when
it is read.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from penstock.checkpoint.store.object_store import ObjectMissing, base_name, join_url, normalize_url
from penstock.checkpoint.store.retrying_store import RetryPolicy, Stores
from penstock.common.config import options
from penstock.common.errors import InvalidJob, PenstockError, StorageError
from penstock.common.program.bundle import MAX_BYTES, check_name, digest_of, prepared
from penstock.jobmanager.process.programs.messages import ProgramSpec
from penstock.rest import facts
from penstock.rest.errors import NotFound

RETRY_S = 20.0
"""Time in seconds for which calls to a storage that does not respond are retried."""
FORGET_S = 30.0
"""Interval in seconds of attempts to remove an ended program."""
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_ID = re.compile(r"[0-9a-f]{32}\Z")

logger = logging.getLogger(__name__)


class ProgramStore:
    """Store below a URL.

    Args:
        url: URL of the folder.
        object_store_options: options of the object stores, by scheme.
        max_unpacked: maximum size of the content of a bundle in bytes. None means the largest possible one.

    All methods raise `StorageError` if the storage does not respond.
    """

    def __init__(
        self, url: str, object_store_options: dict[str, Any] | None = None, max_unpacked: int | None = None
    ) -> None:
        self.max_unpacked = max_unpacked
        self.url = normalize_url(url)
        self._store = Stores(object_store_options or {}, RetryPolicy(retry_for=RETRY_S)).for_url(self.url)

    # --- bundles ----------------------------------------------------------------------------------------------

    def put_bundle(self, name: str, content: bytes) -> facts.Jar:
        """Store a bundle, and return its description. The same bundle is stored once.

        Raises:
            InvalidJob: the bundle is too large or empty, or its name is not the name of a program.
        """
        check_name(name)
        if not content:
            raise InvalidJob(f"{name} is empty", remedy="send the program's file")
        if len(content) > MAX_BYTES:
            raise InvalidJob(
                f"{name} has more than {MAX_BYTES >> 20} MiB", remedy="put large files into an image or into storage"
            )
        digest = digest_of(content)
        self._store.put(self._bundle_url(name, digest), content)
        self._store.delete(self._hidden_url(name, digest))
        return facts.Jar(f"{digest}_{name}", name, int(time.time() * 1000))

    def bundles(self, *, with_hidden: bool = False) -> list[facts.Jar]:
        """Return the stored bundles, the newest first.

        Args:
            with_hidden: whether to return bundles that a client has deleted, and that a running program needs.
        """
        found: list[facts.Jar] = []
        hidden = set() if with_hidden else self._hidden()
        for info in self._store.list_objects(join_url(self.url, "bundles") + "/"):
            name, digest = base_name(info.url), info.url.rsplit("/", 2)[-2]
            if _DIGEST.match(digest) and _is_program(name) and f"{digest}_{name}" not in hidden:
                found.append(facts.Jar(f"{digest}_{name}", name, int((info.modified or 0.0) * 1000)))
        return sorted(found, key=lambda jar: -jar.uploaded)

    def bundle(self, name: str, digest: str) -> bytes:
        """Return a bundle.

        Raises:
            NotFound: the bundle was deleted.
            StorageError: its content has another digest.
        """
        try:
            content = self._store.get(self._bundle_url(name, digest))
        except ObjectMissing:
            raise NotFound(f"the program {name} is not stored", remedy="upload it again") from None
        if digest_of(content) != digest:
            raise StorageError(f"{self._bundle_url(name, digest)} is damaged", remedy="upload the program again")
        return content

    def folder(self, name: str, digest: str) -> Path:
        """Return the folder with the unpacked bundle and its packages.

        Raises:
            InvalidJob: the bundle cannot be unpacked, or its packages cannot be installed.
            NotFound: the bundle was deleted.
        """
        try:
            return prepared(name, digest, lambda: self.bundle(name, digest), self.max_unpacked)
        except InvalidJob as error:
            if "unpacks to more than" in error.message:
                error.remedy = f"put large files into storage, or raise {options.PROGRAM_UNPACKED.key} of the cluster"
            raise

    def find(self, jar_id: str) -> tuple[str, str]:
        """Return file name and digest of a stored bundle.

        Raises:
            NotFound: no such bundle is stored.
        """
        digest, _, name = jar_id.partition("_")
        if not _DIGEST.match(digest) or all(jar.id != jar_id for jar in self.bundles()):
            raise NotFound(f"the program {jar_id!r} is not stored", remedy="GET /jars lists the stored programs")
        return check_name(name), digest

    def delete_bundle(self, name: str, digest: str) -> None:
        self._store.delete(self._bundle_url(name, digest))
        self._store.delete(self._hidden_url(name, digest))

    def hide_bundle(self, name: str, digest: str) -> None:
        """Delete a bundle for clients. A running program needs it when it starts again."""
        self._store.put(self._hidden_url(name, digest), b"")

    def sweep(self, used: Collection[str], expired: Callable[[facts.Jar], bool]) -> None:
        """Delete the bundles that no program uses, and that are hidden or expired.

        Args:
            used: ids of the bundles of running programs.
        """
        hidden = self._hidden()
        for jar in self.bundles(with_hidden=True):
            if jar.id not in used and (jar.id in hidden or expired(jar)):
                logger.info("the uploaded program %s is deleted, because no program uses it", jar.id)
                self.delete_bundle(jar.name, jar.id.partition("_")[0])

    def _hidden(self) -> set[str]:
        return {base_name(info.url) for info in self._store.list_objects(join_url(self.url, "deleted") + "/")}

    def _hidden_url(self, name: str, digest: str) -> str:
        return join_url(self.url, "deleted", f"{digest}_{name}")

    def _bundle_url(self, name: str, digest: str) -> str:
        return join_url(self.url, "bundles", digest, name)

    # --- programs ---------------------------------------------------------------------------------------------

    def put(self, program: ProgramSpec) -> None:
        self._store.put(self._program_url(program.id), msgspec.json.encode(program))

    def put_graph(self, program_id: str, content: bytes) -> None:
        """Store the graph of a program of `create_remote_environment`. Call it before `put`."""
        self._store.put(self._graph_url(program_id), content)

    def graph(self, program: ProgramSpec) -> bytes:
        """Return the graph of a program.

        Raises:
            NotFound: the graph was deleted.
            StorageError: its content has another digest.
        """
        url = self._graph_url(program.id)
        try:
            content = self._store.get(url)
        except ObjectMissing:
            raise NotFound(
                f"the graph of program {program.id} is not stored", remedy="start the program again"
            ) from None
        if digest_of(content) != program.digest:
            raise StorageError(f"{url} is damaged", remedy="start the program again")
        return content

    def remove(self, program: ProgramSpec) -> None:
        if program.graph is not None:
            self._store.delete(self._graph_url(program.id))
        self._store.delete(self._program_url(program.id))

    def remove_later(self, program: ProgramSpec, closing: threading.Event) -> None:
        """Remove a program. If the storage does not respond, try it again until the session ends."""
        if not program.is_stored:
            return

        def remove() -> bool:
            try:
                self.remove(program)
            except PenstockError as error:
                logger.warning("the ended program %s is still in storage: %s", program.id, error)
                return False
            return True

        def keep_trying() -> None:
            while not closing.wait(FORGET_S) and not remove():
                pass

        if not remove():
            threading.Thread(target=keep_trying, name="program-removal", daemon=True).start()

    def programs(self) -> list[ProgramSpec]:
        """Return the programs that have not ended, in the order of their submission. Files that are not programs are logged and ignored."""
        found = []
        for info in self._store.list_objects(join_url(self.url, "programs") + "/"):
            try:
                program = msgspec.json.decode(self._store.get(info.url), type=ProgramSpec)
                if program.graph is None:
                    check_name(program.bundle)
                if not all(map(_ID.match, (program.id, program.job_id))) or not _DIGEST.match(program.digest):
                    raise ValueError("an id is not hexadecimal")
                if base_name(info.url) != f"{program.id}.json":
                    raise ValueError(f"it describes program {program.id}")
                found.append(program)
            except ObjectMissing:
                continue
            except (msgspec.DecodeError, ValueError, InvalidJob) as error:
                logger.warning("%s is ignored, because it does not describe a program: %s", info.url, error)
        return sorted(found, key=lambda program: program.submitted_at)

    def _graph_url(self, program_id: str) -> str:
        return join_url(self.url, "graphs", program_id)

    def _program_url(self, program_id: str) -> str:
        return join_url(self.url, "programs", f"{program_id}.json")


def _is_program(name: str) -> bool:
    with suppress(InvalidJob):
        return bool(check_name(name))
    return False
