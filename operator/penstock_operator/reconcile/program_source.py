"""The content of a program that a FlinkJob names by reference, as a part of its spec.

A pass replaces `job.source.configMap` by `job.source.files`, with the current content of the ConfigMap. All later code
treats the program like one in the manifest. So an edit of the ConfigMap changes the revision. The ControllerRevision
has the content for a rollback, and the pods read a copy that belongs to their revision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock_operator.api.flinkjob import ConfigMapSource
from penstock_operator.api.validation import file_problems
from penstock_operator.errors import Denied, Problem, SpecError
from penstock_operator.kube.cluster import CONFIG_MAP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock_operator.kube.cluster import Cluster

_CONFIG_MAP = "spec.job.source.configMap"


async def with_content(cluster: Cluster, namespace: str, raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a FlinkJob's spec with the content of the ConfigMap that it names. Return another spec unchanged, also
    one that is not valid.

    Every call reads the ConfigMap, because an edit of the FlinkJob often comes together with one of the ConfigMap.

    Raises:
        SpecError: the ConfigMap does not exist, or has no program.
        KubeError: the API server does not respond.
    """
    job = raw.get("job")
    source = job.get("source") if isinstance(job, dict) else None
    if not isinstance(job, dict) or not isinstance(source, dict) or set(source) != {"configMap"}:
        return raw
    try:
        name = ConfigMapSource.model_validate(source["configMap"]).name
    except ValueError:
        return raw
    files = await _files(cluster, namespace, name)
    return {**raw, "job": {**job, "source": {"files": files}}}


async def _files(cluster: Cluster, namespace: str, name: str) -> dict[str, str]:
    try:
        found = await cluster.get(CONFIG_MAP, namespace, name)
    except Denied as error:
        problem = Problem(_CONFIG_MAP, f"ConfigMap {name} cannot be read: {error}", "Give the operator the right to.")
        raise SpecError((problem,)) from error
    if found is None:
        problem = Problem(_CONFIG_MAP, f"ConfigMap {name} does not exist", f"Create it in the namespace {namespace}.")
        raise SpecError((problem,))
    files: dict[str, str] = found.get("data") or {}
    field = f"{_CONFIG_MAP} ({name})"
    problems = list(file_problems(files, field))
    if found.get("binaryData"):
        names = ", ".join(sorted(found["binaryData"])[:10])
        remedy = "Put files that are not UTF-8 text into an archive, and set source.url and source.sha256."
        problems.append(Problem(field, f"binary files are not supported: {names}", remedy))
    elif not files:
        problems.append(Problem(field, "the ConfigMap has no files", "Add the program to its data."))
    if problems:
        raise SpecError(tuple(problems))
    return files
