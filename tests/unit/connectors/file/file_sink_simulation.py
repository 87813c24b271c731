"""A JobManager in fifty lines. It runs the writers and the committer of a FileSink, and crashes at any point.

The input is the numbers 0, 1, 2, …. A manifest stores the input's position, the states of the writers and the committables. A crash
drops the writers without closing them. A restart restores the last manifest, at any parallelism. At the end, readers must see every
number once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.connectors.core.sink import SinkWriter, WriterContext
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
        """Start a new attempt from the last manifest."""
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
        """Take a checkpoint.

        Args:
            complete: False abandons the checkpoint, and the job continues.
            commit: number of commits. The next manifest also contains everything that is not confirmed as committed.
        """
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
        """Drop the writers without closing them. The writers of the previous attempt become zombies."""
        self.zombies = self.writers
        self.start(parallelism)

    def zombie_writes(self) -> None:
        """Let a replaced writer continue to write, and close its parts."""
        for writer in self.zombies:
            writer.write([-1] * 5, None, 0)
            writer.prepare_commit(self.checkpoint_id + 1000)
        self.zombies = []

    def finish(self) -> None:
        for writer in self.writers:
            writer.finish()
        self.barrier()
        self.committer.discard_unreferenced(self.manifest.committables)
