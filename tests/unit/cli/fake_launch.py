"""A double for `penstock.jobmanager.process.launch`: it records its calls and runs programs without a cluster."""

from __future__ import annotations

import runpy
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

JOB_ID = "ab" * 16


class FakeLaunch(ModuleType):
    def __init__(self) -> None:
        super().__init__("penstock.jobmanager.process.launch")
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.url = "http://localhost:9999"
        self.report: Mapping[str, Any] = {"ok": True, "problems": [], "graph": None}
        self.error: Exception | None = None

    def run_script(
        self, *, script: str, args: Sequence[str], on_submitted: Callable[[str, str, str], None], **rest: Any
    ) -> None:
        self.calls.append(("run_script", {"script": script, "args": list(args), **rest}))
        sys.argv = [script, *args]
        program = runpy.run_path(script, run_name="__main__")
        on_submitted(JOB_ID, "job", self.url)
        program.get("after", lambda: None)()

    def run_cluster(self, **arguments: Any) -> None:
        return None

    def run_master(self, **arguments: Any) -> int:
        self.calls.append(("run_master", arguments))
        return 3

    def run_worker(self, **arguments: Any) -> int:
        self.calls.append(("run_worker", arguments))
        return 0

    def check(self, **arguments: Any) -> Mapping[str, Any]:
        self.calls.append(("check", arguments))
        sys.stdout.write("the program prints\n")
        if self.error is not None:
            raise self.error
        return self.report


def install() -> FakeLaunch:
    """Replace the module for later imports. `sitecustomize` calls this in processes that a test starts."""
    fake = FakeLaunch()
    sys.modules["penstock.jobmanager.process.launch"] = fake
    return fake
