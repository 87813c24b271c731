"""The attacker's location: a separate network. Without root it is this machine, under its external address."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import psutil

ATTACK = Path(__file__).with_name("attack.py")


class OtherNetwork:
    """A context manager for the attacker's network.

    `address` is this machine's address for the attacker, which is not a loopback address.
    """

    def __init__(self) -> None:
        self._namespace = ""
        if os.getuid() == 0 and shutil.which("ip"):
            number = os.getpid()
            self._namespace = f"penstock-{number}"
            self._link = f"ps{number}"
            network = f"198.{18 + number % 2}.{number // 2 % 256}"
            self.address, self._other = f"{network}.1", f"{network}.2"
        else:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.connect(("198.18.0.1", 9))
                self.address = str(probe.getsockname()[0])
        assert not self.address.startswith("127.")

    def __enter__(self) -> OtherNetwork:
        if self._namespace:
            there = ("ip", "-n", self._namespace)
            _run("ip", "netns", "add", self._namespace)
            try:
                _run("ip", "link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", self._namespace)
                _run("ip", "address", "add", f"{self.address}/30", "dev", self._link)
                _run("ip", "link", "set", self._link, "up")
                _run(*there, "address", "add", f"{self._other}/30", "dev", "eth0")
                _run(*there, "link", "set", "eth0", "up")
                _run(*there, "link", "set", "lo", "up")
            except BaseException:
                self.__exit__()
                raise
        return self

    def __exit__(self, *error: object) -> None:
        if self._namespace:
            _run("ip", "netns", "delete", self._namespace)

    def attack(self, ports: Iterable[int]) -> dict[int, dict[str, bytes] | None]:
        """Return the response of each port to each attack (see `attack.py`), or None if the port is closed."""
        inside = ["ip", "netns", "exec", self._namespace] if self._namespace else []
        command = [*inside, sys.executable, str(ATTACK), self.address, *map(str, sorted(ports))]
        printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout
        return {
            int(port): None if received is None else {name: bytes.fromhex(text) for name, text in received.items()}
            for port, received in json.loads(printed).items()
        }


def listening(roots: Iterable[int]) -> dict[tuple[str, int], str]:
    """Return the listening addresses of these processes and of all below them, with the command lines of the processes."""
    found = {}
    for root in roots:
        for process in (psutil.Process(root), *psutil.Process(root).children(recursive=True)):
            try:
                for connection in process.net_connections("tcp"):
                    if connection.status == psutil.CONN_LISTEN:
                        found[connection.laddr.ip, connection.laddr.port] = " ".join(process.cmdline())
            except psutil.Error:
                continue  # the process has ended in the meantime
    return found


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
