"""Count the words that arrive at a socket.

`python job.py` counts a text that the program sends to itself.

`python job.py --host localhost --port 9999` counts the lines of a server, such as `nc -lk 9999`.
"""

from __future__ import annotations

import argparse
import socket
import threading
from collections.abc import Iterator

from penstock.datastream import DataStream
from penstock.datastream import StreamExecutionEnvironment as Environment

TEXT = "to be or not to be\nthat is the question\n"


def split(line: str) -> Iterator[tuple[str, int]]:
    """Return a pair of a word and 1 for each word of the line."""
    for word in line.lower().split():
        yield word, 1


def build(lines: DataStream[str]) -> DataStream[tuple[str, int]]:
    """Build the job on a stream of lines. It emits the new count of a word for each occurrence."""
    words = lines.flat_map(split).name("words").uid("words")
    return words.key_by(0).sum(1).name("counts").uid("counts")


def serve(text: str) -> int:
    """Send a text to the first client that connects. Return the port."""
    server = socket.create_server(("localhost", 0))

    def send() -> None:
        client, _ = server.accept()
        with server, client:
            client.sendall(text.encode())

    threading.Thread(target=send, daemon=True).start()
    return int(server.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="localhost", help="host of the server")
    parser.add_argument("--port", type=int, help="port of the server (default: the program is the server)")
    arguments, _ = parser.parse_known_args()  # the remaining arguments are Penstock's
    env = Environment.get_execution_environment()
    lines = env.socket_text_stream(arguments.host, arguments.port or serve(TEXT), max_retry=5 if arguments.port else 0)
    build(lines).print()
    env.execute("socket-word-count")


if __name__ == "__main__":
    main()
