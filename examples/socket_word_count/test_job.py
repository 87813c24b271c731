"""Tests in one process, without Spark and without a socket."""

from __future__ import annotations

import socket

from job import build, serve

from penstock.testing import JobHarness


def test_each_occurrence_of_a_word_emits_its_new_count() -> None:
    with JobHarness(parallelism=2) as harness:
        harness.collect(build(harness.source("lines")), "counts")
        harness.push("lines", "To be or", "not to be")
        found = harness.outputs("counts")
        assert sorted(found) == [("be", 1), ("be", 2), ("not", 1), ("or", 1), ("to", 1), ("to", 2)]


def test_a_crash_does_not_lose_counts() -> None:
    with JobHarness() as harness:
        harness.collect(build(harness.source("lines")), "counts")
        harness.push("lines", "a a")
        harness.snapshot()
        harness.crash()
        harness.push("lines", "a")
        assert harness.outputs("counts") == [("a", 1), ("a", 2), ("a", 3)]


def test_the_server_sends_its_text_once() -> None:
    with socket.create_connection(("localhost", serve("one\ntwo\n"))) as client:
        assert client.makefile().read() == "one\ntwo\n"
