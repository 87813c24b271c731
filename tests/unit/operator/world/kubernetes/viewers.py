"""FlinkJobs as Argo CD and kstatus show them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import lupa

SCRIPT = (Path(__file__).parents[5] / "docs/operator/argocd-health.lua").read_text()
EXPECTED = {"Current": {"Healthy", "Suspended"}, "InProgress": {"Progressing"}, "Failed": {"Degraded"}}
"""Results of kstatus, and the states that Argo CD may show for each."""


@cache
def _lua() -> Any:
    return lupa.LuaRuntime(unpack_returned_tuples=True)


def health(manifest: dict[str, Any]) -> tuple[str, str]:
    """Return the state and the message that Argo CD shows."""
    lua = _lua()
    lua.globals().obj = lua.table_from(manifest, recursive=True)
    result = lua.execute(SCRIPT)
    return str(result["status"]), str(result["message"])


def kstatus(manifest: dict[str, Any]) -> str:
    """Return the result of kstatus for an object with conditions: its rules in its order."""
    status = manifest.get("status") or {}
    if status.get("observedGeneration") != manifest["metadata"]["generation"]:
        return "InProgress"
    for condition in status.get("conditions", ()):
        if condition["type"] == "Reconciling" and condition["status"] == "True":
            return "InProgress"
        if condition["type"] == "Stalled" and condition["status"] == "True":
            return "Failed"
    ready = next((c for c in status.get("conditions", ()) if c["type"] == "Ready"), None)
    return "Current" if ready is not None and ready["status"] == "True" else "InProgress"


def check_status(manifest: dict[str, Any]) -> None:
    """Check that kstatus and Argo CD agree, at most one of Reconciling and Stalled is true, and Ready is correct."""
    truths = {c["type"]: c["status"] == "True" for c in manifest["status"]["conditions"]}
    assert not (truths["Reconciling"] and truths["Stalled"])
    assert not (truths["Ready"] and (truths["Reconciling"] or truths["Stalled"]))
    assert not (truths["Ready"] and "operation" in manifest["status"])
    assert health(manifest)[0] in EXPECTED[kstatus(manifest)]
    if truths["Stalled"]:
        stalled = next(c for c in manifest["status"]["conditions"] if c["type"] == "Stalled")
        assert stalled["message"], "the message names the remedy"
