"""``python tools/kafkaserver.py``: Kafka brokers that outlive the command that started them.

python tools/kafkaserver.py start --state-dir DIR [--brokers N] [--host ADDRESS] [--topic NAME[:PARTITIONS]]...
eval "$(python tools/kafkaserver.py status --state-dir DIR)"
python tools/kafkaserver.py stop --state-dir DIR
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterable
from contextlib import ExitStack

from tools.kafkaserver import HOST, KafkaServer
from tools.servercommand import ServerCommand


def main(arguments: list[str] | None = None) -> int:
    """The command line; the exit code."""
    command = ServerCommand("kafkaserver", "Real Kafka brokers for development.", _start)
    command.parser.add_argument("--brokers", type=int, default=1, help="how many (1)")
    command.parser.add_argument("--host", default=HOST, help=f"address that clients reach the brokers under ({HOST})")
    command.parser.add_argument(
        "--topic", action="append", default=[], help="topic to make, NAME:PARTITIONS; may be repeated"
    )
    return command.run(arguments)


def _start(options: argparse.Namespace) -> tuple[dict[str, str], Iterable[subprocess.Popen[bytes]]]:
    server = KafkaServer(options.state_dir, options.brokers, host=options.host).start()
    with ExitStack() as undo:
        undo.callback(server.stop)
        for topic in options.topic:
            name, _, partitions = topic.partition(":")
            server.create_topic(name, int(partitions or 1))
        undo.pop_all()
    return {"KAFKA_BOOTSTRAP_SERVERS": server.bootstrap_servers}, server.processes.values()
