"""Orders of the soak to the user's code of its job, and sinks that an order slows down."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from penstock.connectors.core.sink import Committer, Sink, SinkWriter, WriterContext
from penstock.records.batch import Batch


class Orders:
    """Orders of the soak to the user's code, as files in a folder. Both sides use this class.

    An order is for one *place* in the program. The first code that meets it takes it (by a rename) and obeys.
    """

    END = "end"
    SLOW = "slow-sink"
    DEEDS = ("raise", "exit", "crash", "hang")

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def give(self, place: str, deed: str) -> None:
        made = Path(self.folder, f"{place}.new")
        made.write_text(deed)
        made.rename(Path(self.folder, place))

    def is_taken(self, place: str) -> bool:
        return not Path(self.folder, place).exists()

    def withdraw(self, place: str) -> bool:
        """Withdraw an order. Return False if it was taken before."""
        try:
            os.remove(os.path.join(self.folder, place))
        except FileNotFoundError:
            return False
        return True

    def obey(self, place: str) -> None:
        path = os.path.join(self.folder, place)
        if not os.path.exists(path):
            return
        taken = f"{path}-taken-{os.getpid()}"
        try:
            os.rename(path, taken)
        except FileNotFoundError:
            return
        deed = Path(taken).read_text()
        os.remove(taken)
        match deed:
            case "raise":
                raise ValueError(f"the soak ordered {place} to raise")
            case "exit":
                sys.exit(3)
            case "crash":
                ctypes.string_at(0)
            case "hang":
                threading.Event().wait()


class SlowableSink(Sink):
    """A sink whose writers pause before every batch while an order exists.

    The order contains the seconds per record. A writer that has paused creates `slow-sink-felt`.
    """

    def __init__(self, inner: Sink, orders: str) -> None:
        self.inner = inner
        self.orders = orders

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        return SlowableWriter(self.inner.create_writer(context, restored), self.orders)

    def create_committer(
        self, object_store_options: dict[str, Any], *, job_id: str = "", uid: str = ""
    ) -> Committer | None:
        return self.inner.create_committer(object_store_options, job_id=job_id, uid=uid)

    def with_object_store_options(self, options: dict[str, Any]) -> SlowableSink:
        return SlowableSink(self.inner.with_object_store_options(options), self.orders)

    def validate(self) -> None:
        self.inner.validate()


class SlowableWriter(SinkWriter):
    def __init__(self, inner: SinkWriter, orders: str) -> None:
        self._inner = inner
        self._orders = orders
        self._order = os.path.join(orders, Orders.SLOW)

    def write_batch(self, batch: Batch, watermark: int) -> None:
        Orders(self._orders).obey("sink")
        if os.path.exists(self._order):
            try:
                seconds = float(Path(self._order).read_text())
            except (FileNotFoundError, ValueError):  # withdrawn in the meantime
                seconds = 0.0
            time.sleep(seconds * len(batch))
            Path(f"{self._order}-felt").touch()
        self._inner.write_batch(batch, watermark)

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        self._inner.write(values, timestamps, watermark)

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        return self._inner.prepare_commit(checkpoint_id)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._inner.notify_checkpoint_complete(checkpoint_id)

    def notify_committed(self, checkpoint_id: int) -> None:
        self._inner.notify_committed(checkpoint_id)

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        return self._inner.snapshot_state(checkpoint_id)

    def advance_processing_time(self, now: int) -> None:
        self._inner.advance_processing_time(now)

    def finish(self) -> None:
        self._inner.finish()

    def flush(self) -> None:
        self._inner.flush()

    def close(self) -> None:
        self._inner.close()
