"""A JobManager in fifty lines: drives the writers and the committer of a FileSink, and crashes wherever it is told.

Input is the numbers 0, 1, 2, …; a manifest remembers how far they were taken, the writers' states and the committables. A
crash drops the writers as they are; what is restored is the last manifest, at whatever parallelism. In the end what readers
see must be every number once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.connectors.sink import SinkWriter, WriterContext
from penstock.state.encoding.serializers import codec_for

if TYPE_CHECKING:
    from penstock.connectors.file.sink.file_sink import FileSink


@dataclass
class Manifest:
    position: int = 0
    states: list[bytes] = field(default_factory=list)
    committables: list[Any] = field(default_factory=list)


class Simulation:
    def __init__(self, sink: FileSink, options: dict[str, Any], clock: Any, job_id: str = "job") -> None:
        self.sink = sink
        self.options = options
        self.clock = clock
        self.job_id = job_id
        self.committer = sink.create_committer(options, job_id=job_id, uid="sink")
        self.manifest = Manifest()
        self.retained: list[Manifest] = []
        self.checkpoint_id = 0
        self.attempt = 0
        self.zombies: list[SinkWriter] = []
        self.writers: list[SinkWriter] = []
        self.start(1)

    def start(self, parallelism: int) -> None:
        """A new attempt from the last manifest."""
        self.committer.commit(self.manifest.committables)
        self.committer.discard_unreferenced([c for m in [*self.retained, self.manifest] for c in m.committables])
        self.attempt += 1
        self.position = self.manifest.position
        self.carried: list[Any] = []
        codec = codec_for(None, state="sink")
        self.writers = [
            self.sink.create_writer(
                WriterContext(n, parallelism, self.attempt, "sink", self.job_id, self.options, self.clock),
                [codec.decode(state) for state in self.manifest.states[n::parallelism]],
            )
            for n in range(parallelism)
        ]

    def write(self, count: int) -> None:
        values = list(range(self.position, self.position + count))
        self.position += count
        for n, writer in enumerate(self.writers):
            share = values[n :: len(self.writers)]
            if share:
                writer.write(share, None, 0)

    def barrier(self, *, complete: bool = True, commit: int = 1) -> None:
        """A checkpoint. `complete=False`: abandoned while the job goes on. `commit`: how often it is committed; what
        is not known to be committed goes into the next manifest as well."""
        self.checkpoint_id += 1
        committables = [c for writer in self.writers for c in writer.prepare_commit(self.checkpoint_id)]
        codec = codec_for(None, state="sink")
        states = [codec.encode(s) for writer in self.writers for s in writer.snapshot_state(self.checkpoint_id)]
        self.carried += json.loads(json.dumps(committables))
        if not complete:
            return
        self.retained.append(self.manifest)
        del self.retained[:-2]
        self.manifest = Manifest(self.position, states, list(self.carried))
        for _ in range(commit):
            self.committer.commit(self.manifest.committables)
            self.carried = []

    def crash(self, parallelism: int) -> None:
        """The writers are gone without a word; those of the attempt before become zombies."""
        self.zombies = self.writers
        self.start(parallelism)

    def zombie_writes(self) -> None:
        """A writer that does not know that it was replaced writes on, and closes what it has."""
        for writer in self.zombies:
            writer.write([-1] * 5, None, 0)
            writer.prepare_commit(self.checkpoint_id + 1000)
        self.zombies = []

    def finish(self) -> None:
        for writer in self.writers:
            writer.finish()
        self.barrier()
        self.committer.discard_unreferenced(self.manifest.committables)
