"""Messages between `penstock dev` and the process of the program."""

from __future__ import annotations

import socket
import threading

from penstock.jobmanager.process.dev.messages import Files, Line, Message


def test_messages_of_several_threads_do_not_mix() -> None:
    ours, theirs = socket.socketpair()
    sender, receiver = Line(theirs, Message), Line(ours, Message)
    files = [Files({f"/{number}/{'x' * 400_000}": (1, 2, 3)}) for number in range(4)]
    threads = [threading.Thread(target=sender.send, args=(one,)) for one in files * 3]
    for thread in threads:
        thread.start()
    found: list[Files] = []
    while len(found) < len(threads):
        found += receiver.take() or []
    for thread in threads:
        thread.join()
    assert sorted(next(iter(one.files)) for one in found) == sorted(next(iter(one.files)) for one in files * 3)
    ours.close()
    theirs.close()
