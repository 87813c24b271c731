"""A git server over HTTP on this machine: git's own `http-backend`."""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

_ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.com",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.com",
}


class Repository:
    """A repository in a folder, without the settings of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str) -> str:
        """Run git in the repository and return its output."""
        command = ["git", *arguments]
        done = subprocess.run(
            command, cwd=self.folder, env={**os.environ, **_ENVIRONMENT}, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def commit(self, files: dict[str, str]) -> str:
        """Write files and commit everything. Return the commit."""
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "change")
        return self.git("rev-parse", "HEAD")


class GitServer:
    """A server of all repositories in a folder. Every request needs the password, if one is set."""

    def __init__(self, root: Path, *, host: str = "127.0.0.1", password: str = "") -> None:
        self.root, self.password = root, password
        self.redirect_to = ""
        """The address to which the server redirects all requests."""
        self.requests: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None: ...

            def do_GET(self) -> None:
                outer.requests.append(self.path)
                _respond(self, outer)

            do_POST = do_GET  # noqa: N815 - http.server calls this name

        self._http = ThreadingHTTPServer((host, 0), Handler)
        self.url = f"http://{host}:{self._http.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()


def _respond(request: BaseHTTPRequestHandler, server: GitServer) -> None:
    """Answer one request with `git http-backend`, a CGI program."""
    body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
    expected = "Basic " + base64.b64encode(f"me:{server.password}".encode()).decode()
    if server.redirect_to:
        request.send_response(302)
        request.send_header("Location", server.redirect_to + request.path)
        request.end_headers()
        return
    if server.password and request.headers.get("Authorization") != expected:
        request.send_error(401)
        return
    path, _, query = request.path.partition("?")
    environment = {
        **os.environ,
        **_ENVIRONMENT,
        "GIT_PROJECT_ROOT": str(server.root),
        "GIT_HTTP_EXPORT_ALL": "1",
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "REQUEST_METHOD": request.command,
        "CONTENT_TYPE": request.headers.get("Content-Type", ""),
        "CONTENT_LENGTH": str(len(body)),
        "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }
    done = subprocess.run(["git", "http-backend"], input=body, env=environment, capture_output=True, check=False)
    head, _, content = done.stdout.partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().splitlines() if line)
    request.send_response(int(headers.pop("Status", "200").split()[0]))
    for name, value in headers.items():
        request.send_header(name, value)
    request.end_headers()
    request.wfile.write(content)
