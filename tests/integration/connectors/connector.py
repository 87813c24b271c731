"""The interface between the conformance tests and a connector.

Each system has a `connector.py` in its folder, with a subclass of `Connector` for each source and sink. A job of the tests reads numbers
and writes rows of a number and a text. A connector without a source reads the numbers from files, and one without a sink writes the
rows to files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from penstock.connectors.core.sink import Sink
from penstock.connectors.core.source import Source
from penstock.datastream.connectors.file_system import FileSink, FileSource, RollingPolicy, StreamFormat
from penstock.datastream.formats.json import JsonLinesEncoder
from tools.servers import kind

FIELDS = {"id": int, "key": str}
"""The fields of a row."""
DISCOVERY_MS = 50


@dataclass(frozen=True)
class Call:
    """A method before or after which a test kills the job."""

    owner: type
    method: str
    is_before: bool = False


class Connector:
    """A source, a sink or both, with the objects of one test in their system.

    The process of a job creates its own instance with the same arguments.

    Args:
        folder: folder of the test.
        address: address of the server, from `address_of`.
    """

    name: ClassVar[str]
    """The name in the ids of the tests."""
    server: ClassVar[str] = ""
    """Module of the server in `tools.servers`. Empty means that the system has no server."""
    fixture: ClassVar[str] = ""
    """Fixture of the shared server, if its name is not that of the module."""
    marker: ClassVar[str] = ""
    """pytest's marker, if its name is not that of the module."""
    is_exactly_once: ClassVar[bool] = True
    """False: the sink may write rows again after a failure."""
    is_keyed: ClassVar[bool] = False
    """Whether the sink replaces the row with the same number, and deletes rows. The output then contains the last row of each number."""
    is_ordered: ClassVar[bool] = False
    """Whether the source reads the numbers of a key in the order in which the test feeds them."""
    environment: ClassVar[dict[str, str]] = {}
    """Environment variables of the job."""
    calls: ClassVar[dict[str, Call]] = {}
    """The calls at which the job is killed, by their names in the ids of the tests."""
    quick_calls: ClassVar[tuple[str, ...]] = ()
    """The calls that `make test` includes. The tests of the other calls of a system without a server are slow."""
    is_quick: ClassVar[bool] = True
    """Whether `make test` includes tests without a kill. Tests of a system with a server are in the target of that system."""
    refused: ClassVar[str] = ""
    """Part of the error for a record that the sink must refuse. Empty means the sink accepts every record."""
    undecodable: ClassVar[str] = ""
    """Part of the error for the input of `feed_poison`. Empty means the source accepts all input."""
    renews_credentials: ClassVar[bool] = False
    """Whether the connector reads its credentials again. `renew_credentials` then replaces them."""

    loses_data: ClassVar[bool] = False
    """Whether a killed server loses its data. Tests then only pause it."""
    pause_s: ClassVar[float] = 1.0
    """Time in seconds for which a test pauses the server."""

    def __init__(self, folder: Path, address: str = "") -> None:
        self.folder = folder
        self.address = address
        self.id = hashlib.blake2b(str(folder).encode(), digest_size=6).hexdigest()
        """A part of the names of all objects of this test."""

    @classmethod
    def address_of(cls, server: Any) -> str:
        """Return the address of a started server, with all that a job needs to connect."""
        raise NotImplementedError

    @classmethod
    def own_server(cls, folder: Path, ids: list[str]) -> Any:
        """Return a server for the connectors with these ids, which is not started."""
        return kind(cls.server)(folder / "server")

    # --- in the process of the job ----------------------------------------------------------------------------

    def source(self) -> Source:
        """Return the source that reads the input."""
        builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(self._folder("in")))
        return builder.monitor_continuously(DISCOVERY_MS).build()

    def number_of(self, record: Any) -> int:
        """Return the number that a record of the source contains."""
        return int(record)

    def sink(self) -> Sink:
        """Return the sink that writes the output."""
        builder = FileSink.for_row_format(f"{self.folder}/out", JsonLinesEncoder())
        return builder.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()

    def record_of(self, number: Any, text: str) -> Any:
        """Return the record for the sink. `number` is a text in a record that the sink must refuse."""
        return {"id": number, "key": text}

    def deletion_of(self, number: int) -> Any:
        """Return the record for the sink that deletes the row with this number."""
        raise NotImplementedError

    @property
    def is_healed(self) -> bool:
        """Return whether the program skips records that source or sink refuse."""
        return (self.folder / "healed").exists()

    # --- in the test ------------------------------------------------------------------------------------------

    def set_up(self) -> None:
        """Create the objects that source and sink need."""
        self._folder("in")

    def feed(self, numbers: Iterable[int]) -> None:
        """Add numbers to the input."""
        texts = [f"{number}\n" for number in numbers]
        count = len(list(self._folder("in").iterdir()))
        draft = self.folder / "draft"
        draft.write_text("".join(texts))
        draft.rename(self._folder("in") / f"{count:05}.txt")

    def feed_poison(self) -> None:
        """Add a record that the source cannot decode."""
        raise NotImplementedError

    def rows(self) -> list[tuple[int, str]]:
        """Return the committed rows of the output."""
        paths = [path for path in self._folder("out").rglob("*") if path.is_file() and path.name[0] != "."]
        found = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
        return [(row["id"], row["key"]) for row in found]

    def renew_credentials(self) -> None:
        """Replace the credentials, invalidate the old ones, and close their connections."""
        raise NotImplementedError

    def _folder(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return folder
