"""The entries of a checkpoint, each added once, whatever becomes of the answers.

A script adds some entries and notes in the same step, in a hash of the sink's, how many of which checkpoint are in. It is told how many that should be before, and adds nothing
if there are others: whoever asks a second time, or beside another one, is told how far it is and goes on from there. A script is one step for the
server, for its replicas and for its file.

A script that fails in the middle would leave what it has done. So everything that can be refused (keys of another type, memory, rights) is asked for before its first entry.
"""

from __future__ import annotations

import hashlib
import logging
from collections import defaultdict
from typing import Any

from penstock.common.errors import SinkError
from penstock.connectors.redis.client import Connection, Server
from penstock.connectors.sink import Committer
from penstock.connectors.spark.staged import content_of, from_ipc

logger = logging.getLogger(__name__)

NOTES = "penstock_commits:"
"""How the keys of notes begin; the sink's name follows."""
_KEPT = 1000
"""Checkpoints whose digests are kept, of each sink. An older one, of a snapshot that somebody goes back to, is told by its time from one of a
job whose checkpoints' ids have begun anew."""
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
"""Of an entry: Lua's stack has an end."""
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
        """
        Raises:
            SinkError: the server is lost for long, or refuses an entry.
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
            told = self._add(app, checkpoint, digest, (done, len(entries), at), self._step(entries, done))
            if told == _COMMITTED:
                logger.info("checkpoint %d was committed to %s before", checkpoint, self._server.shown)
                return
            if told == _OTHER:
                raise SinkError(
                    f"{self._server.shown}: {NOTES + app!r} has another checkpoint {checkpoint} or later ones, and not these entries: the ids of "
                    "this job's checkpoints have begun anew, so its checkpoints were removed by hand",
                    remedy="give the job another id, or start it from its newest savepoint",
                )
            if told < done:
                raise SinkError(
                    f"{self._server.shown}: {NOTES + app!r} has gone while checkpoint {checkpoint} was committed: {done} of its entries are in, "
                    "and come again",
                    remedy="let nothing remove these keys, and set a maxmemory-policy that evicts no keys without a time to live",
                )
            done = told

    def _add(self, app: str, checkpoint: int, digest: str, progress: tuple[int, int, int], entries: list[Entry]) -> int:
        """How many entries of the checkpoint are in now, or why none were added. `progress`: how many are, of how many, which were
        taken from the job at that time (ms)."""
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
        """So many that the server is not held for long."""
        size = 0
        for end in range(done, min(done + self._size, len(entries))):
            size += sum(map(len, entries[end][1]))
            if size > _STEP_BYTES:
                return entries[done : end + 1]
        return entries[done : done + self._size]

    def interrupt(self) -> None:
        """End the request that does not return."""
        self._connection.close()

    def close(self) -> None:
        self._connection.close()


def digest_of(pieces: list[dict[str, Any]]) -> str:
    """Tells the entries of one commit from those of another."""
    return hashlib.blake2b("\n".join(sorted(piece["id"] for piece in pieces)).encode(), digest_size=8).hexdigest()
