"""The user of a server that refuses to run as root."""

from __future__ import annotations

import os
import pwd
from pathlib import Path


class ServerUser:
    """The first existing user of ``names`` if this process is root, otherwise this process's user."""

    def __init__(self, *names: str) -> None:
        self.entry: pwd.struct_passwd | None = None
        if os.geteuid() == 0:
            known = {user.pw_name: user for user in pwd.getpwall()}
            self.entry = next(known[name] for name in names if name in known)

    @property
    def prefix(self) -> list[str]:
        """The start of a command that runs as this user."""
        if self.entry is None:
            return []
        return ["setpriv", f"--reuid={self.entry.pw_uid}", f"--regid={self.entry.pw_gid}", "--clear-groups"]

    def own(self, *paths: Path) -> None:
        """Give the files to this user, and allow the user to reach them."""
        if self.entry is None:
            return
        for path in paths:
            os.chown(path, self.entry.pw_uid, self.entry.pw_gid)
            for folder in path.parents:
                if folder.stat().st_uid == os.geteuid() and not folder.stat().st_mode & 0o001:
                    folder.chmod(folder.stat().st_mode | 0o011)
