"""``python tools/kafkaserver.py``: Kafka brokers that outlive the command that started them.

python tools/kafkaserver.py start --state-dir DIR [--brokers N] [--topic NAME[:PARTITIONS]]...
eval "$(python tools/kafkaserver.py status --state-dir DIR)"
python tools/kafkaserver.py stop --state-dir DIR
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools import processes
from tools.errors import ToolError
from tools.kafkaserver import KafkaServer


def main(arguments: list[str] | None = None) -> int:
    """The command line; ``start`` and ``status`` print the environment that a client needs, as an ``export`` line."""
    parser = argparse.ArgumentParser(prog="kafkaserver", description="Real Kafka brokers for development.")
    parser.add_argument("verb", choices=["start", "stop", "status"])
    parser.add_argument("--state-dir", type=Path, required=True, help="what they store, their logs")
    parser.add_argument("--brokers", type=int, default=1, help="how many (1)")
    parser.add_argument("--topic", action="append", default=[], help="topic to make, NAME:PARTITIONS; may be repeated")
    options = parser.parse_args(arguments)
    state: Path = options.state_dir
    try:
        if options.verb == "stop":
            _stop(state)
            return 0
        servers = _running(state)
        if options.verb == "start" and servers is None:
            servers = _start(state, options.brokers, options.topic)
    except ToolError as error:
        print(f"{error.code}: {error}", file=sys.stderr)
        return 1
    if servers is None:
        print("not running")
        return 1
    print(f"export KAFKA_BOOTSTRAP_SERVERS={servers}")
    return 0


def _references(state: Path) -> list[Path]:
    return sorted(state.glob("process-*.json"))


def _running(state: Path) -> str | None:
    """Addresses of the brokers; None when none runs."""
    known = [processes.load(path) for path in _references(state)]
    if not any(process is not None and process.alive() for process in known):
        return None
    return (state / "bootstrap.servers").read_text()


def _start(state: Path, brokers: int, topics: list[str]) -> str:
    server = KafkaServer(state, brokers).start()
    for node, process in server.processes.items():
        processes.save(state / f"process-{node}.json", processes.of(process.pid))
        # from here on it is nobody's child: told apart by its process id, ended by ``stop``
        process.returncode = 0
    (state / "bootstrap.servers").write_text(server.bootstrap_servers)
    for topic in topics:
        name, _, partitions = topic.partition(":")
        server.create_topic(name, int(partitions or 1))
    return server.bootstrap_servers


def _stop(state: Path) -> None:
    for path in _references(state):
        process = processes.load(path)
        if process is not None:
            process.end(patience=10.0)
        path.unlink()
