"""Add the entries of a checkpoint exactly once, even if answers are lost.

A script adds some entries. In the same step it records in a hash how many entries of which checkpoint the sink has added. The caller
passes the expected number of added entries. If the recorded number differs, the script adds nothing and returns the recorded number. The
caller continues from there. This happens after a retry, or if two callers run at the same time. A script is one atomic step for the
server, its replicas and its append-only file.

A script that fails in the middle would not undo its earlier commands. So the script checks everything that the server can reject (keys of
another type, memory, rights) before it adds the first entry.
"""

from __future__ import annotations

import hashlib
import logging
from collections import defaultdict
from typing import Any

from penstock.common.errors import SinkError
from penstock.connectors.core.sink import Committer
from penstock.connectors.redis.client import Connection, Server
from penstock.connectors.spark.staged import content_of, from_ipc

logger = logging.getLogger(__name__)

NOTES = "penstock_commits:"
"""Prefix of the keys of notes. The sink's name follows."""
_KEPT = 1000
"""The number of checkpoints per sink whose digests are kept. An older checkpoint can come from an old snapshot, or from a job whose
checkpoint ids have restarted. The script distinguishes the two cases by the times of the checkpoints."""
_COMMITTED, _OTHER = -1, -2
_SCRIPT = """
local notes, digests, checkpoint, digest = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local from, total, kept, length = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local at = tonumber(ARGV[7])
local last = redis.call('HMGET', notes, 'checkpoint', 'digest', 'entries', 'at')
local now = 0
if last[1] and tonumber(last[1]) > tonumber(checkpoint) then
  if redis.call('ZSCORE', digests, checkpoint .. ' ' .. digest) then return -1 end
  local first = redis.call('ZRANGE', digests, 0, 0, 'WITHSCORES')
  local is_older = at <= tonumber(last[4] or at)
  if is_older and first[2] and tonumber(checkpoint) < tonumber(first[2]) then return -1 end
  return -2
end
if last[1] == checkpoint then
  if last[2] ~= digest then return -2 end
  now = tonumber(last[3])
  if now >= total then return -1 end
end
if now ~= from then return now end
for index = 3, #KEYS do
  local kind = redis.call('TYPE', KEYS[index])
  kind = kind.ok or kind
  if kind ~= 'none' and kind ~= 'stream' then
    return redis.error_reply('WRONGTYPE ' .. KEYS[index] .. ' is a ' .. kind)
  end
end
redis.call('HSET', notes, 'by', 'penstock')
redis.call('ZADD', digests, checkpoint, checkpoint .. ' ' .. digest)
redis.call('ZREMRANGEBYRANK', digests, 0, -kept - 1)
local place, added = 8, 0
while place <= #ARGV do
  local stream, count = KEYS[tonumber(ARGV[place])], tonumber(ARGV[place + 1])
  local call = {'XADD', stream}
  if length > 0 then call = {'XADD', stream, 'MAXLEN', '~', length} end
  call[#call + 1] = '*'
  for index = place + 2, place + 1 + count do call[#call + 1] = ARGV[index] end
  redis.call(unpack(call))
  place, added = place + 2 + count, added + 1
end
redis.call('HSET', notes, 'checkpoint', checkpoint, 'digest', digest, 'entries', from + added, 'at', at)
return from + added
"""
"""KEYS: notes (a hash), digests (a sorted set), streams."""
MOST_FIELDS = 3_000
"""Maximum number of fields of an entry. Lua's stack limits it."""
_STEP_BYTES = 4 * 1024 * 1024
Entry = tuple[str, list[bytes]]


class RedisCommitter(Committer):
    def __init__(self, server: Server, patience_s: float, batch_size: int, max_length: int) -> None:
        self._server = server
        self._connection = Connection(server, SinkError, patience_s)
        self._connection.stopped = lambda: self._is_given_up
        self._size = batch_size
        self._max_length = max_length

    def commit(self, committables: list[Any]) -> None:
        """Add the entries of completed checkpoints to their streams.

        Raises:
            SinkError: the server is unavailable for too long, or rejects an entry.
        """
        groups: defaultdict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
        for piece in committables:
            groups[piece["checkpoint"], piece["app"]].append(piece)
        for (checkpoint, app), pieces in sorted(groups.items(), key=lambda group: group[0]):
            self._commit_once(app, checkpoint, sorted(pieces, key=lambda piece: (piece["subtask"], piece["id"])))

    def _commit_once(self, app: str, checkpoint: int, pieces: list[dict[str, Any]]) -> None:
        digest = digest_of(pieces)
        entries: list[Entry] = []
        for piece in pieces:
            table = from_ipc(content_of(piece, self.environment))
            entries += zip(table["stream"].to_pylist(), table["fields"].to_pylist(), strict=True)
        at = max(piece.get("at", 0) for piece in pieces)
        done = 0
        while done < len(entries):
            self.check_wanted()
            added = self._add(app, checkpoint, digest, (done, len(entries), at), self._step(entries, done))
            if added == _COMMITTED:
                logger.info("checkpoint %d was committed to %s before", checkpoint, self._server.shown)
                return
            if added == _OTHER:
                raise SinkError(
                    f"{self._server.shown}: {NOTES + app!r} has another checkpoint {checkpoint} or later ones, but not these entries. "
                    f"The job's "
                    "checkpoint ids have restarted, because its checkpoints were removed by hand",
                    remedy="give the job another id, or start it from its newest savepoint",
                )
            if added < done:
                raise SinkError(
                    f"{self._server.shown}: {NOTES + app!r} disappeared while checkpoint {checkpoint} was committed. {done} of its "
                    f"entries are in the "
                    "stream and will be added again",
                    remedy="make sure that no program deletes these keys, and set a maxmemory-policy that evicts only keys with a time to live",
                )
            done = added

    def _add(self, app: str, checkpoint: int, digest: str, progress: tuple[int, int, int], entries: list[Entry]) -> int:
        """Add entries, and return how many of the checkpoint's entries the server has now. If the script adds no entry
        for a reason other than a wrong number, return `_COMMITTED` or `_OTHER`.

        `progress`: the number of entries already added, their total number, and the time of the checkpoint barrier in ms."""
        done, total, at = progress
        keys = [NOTES + app, f"{NOTES}{app}:digests", *dict.fromkeys(stream for stream, _ in entries)]
        places = {stream: number for number, stream in enumerate(keys, 1) if number > 2}
        arguments: list[Any] = [checkpoint, digest, done, total, _KEPT, self._max_length, at]
        for stream, fields in entries:
            arguments += [places[stream], len(fields), *fields]
        return self._connection.run(
            f"entries of checkpoint {checkpoint} cannot be added to {', '.join(map(repr, keys[2:]))[:300]}",
            lambda client: int(client.eval(_SCRIPT, len(keys), *keys, *arguments)),
        )

    def _step(self, entries: list[Entry], done: int) -> list[Entry]:
        """Return as many entries as fit in one step without blocking the server for long."""
        size = 0
        for end in range(done, min(done + self._size, len(entries))):
            size += sum(map(len, entries[end][1]))
            if size > _STEP_BYTES:
                return entries[done : end + 1]
        return entries[done : done + self._size]

    def interrupt(self) -> None:
        """Abort a request that does not return."""
        self._connection.close()

    def close(self) -> None:
        self._connection.close()


def digest_of(pieces: list[dict[str, Any]]) -> str:
    """Return a digest that identifies the entries of one commit."""
    return hashlib.blake2b("\n".join(sorted(piece["id"] for piece in pieces)).encode(), digest_size=8).hexdigest()
