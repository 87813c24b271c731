"""Replacement of references to a program by the content of the program, so that the program is a part of the spec.

A pass replaces `job.source.configMap` by `job.source.files`, with the current content of the ConfigMap. All later code
treats the program like a program in the manifest. So an edit of the ConfigMap changes the revision. The
ControllerRevision has the content for a rollback, and the pods read a copy that belongs to their revision.

A pass also replaces `job.source.git.ref` by a commit. The operator resolves a branch only once, like the tag of an image,
and records the commit in the status. So a restart or a rollback never runs other code than before.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from penstock.common.errors import PenstockError
from penstock.common.program.git import Credentials, resolve_ref
from penstock_operator.api.flinkjob import ConfigMapSource, GitSource
from penstock_operator.api.status.flinkjob_status import ResolvedRef
from penstock_operator.api.validation import file_problems
from penstock_operator.errors import Denied, Problem, SpecError
from penstock_operator.kube.cluster import CONFIG_MAP, SECRET
from penstock_operator.resources.named_secrets import ACCOUNT_TOKEN, secret_texts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock_operator.api.limits.tenant_limits import TenantLimits
    from penstock_operator.kube.cluster import Cluster, Manifest

_FIELD = "spec.job.source"
_TIMEOUT_S = 10.0


class RefResolver(Protocol):
    """Function that asks a git server for the commit of a branch or tag. It raises a `SpecError` if the reference does not exist."""

    async def __call__(self, url: str, ref: str, credentials: Credentials | None) -> str: ...


async def resolve_on_server(url: str, ref: str, credentials: Credentials | None) -> str:
    """Implement `RefResolver` with a request to the server."""
    try:
        return await asyncio.to_thread(resolve_ref, url, ref, credentials, timeout_s=_TIMEOUT_S)
    except PenstockError as error:
        raise _refused("git.ref", error.message, f"{error.remedy[:1].upper()}{error.remedy[1:]}.") from error


class ProgramSource:
    """Reader of the programs that FlinkJobs of one namespace refer to."""

    def __init__(self, cluster: Cluster, namespace: str, limits: TenantLimits, resolve: RefResolver) -> None:
        self._cluster, self._namespace, self._limits, self._resolve = cluster, namespace, limits, resolve

    async def with_content(
        self, raw: Mapping[str, Any], known: ResolvedRef | None
    ) -> tuple[Mapping[str, Any], ResolvedRef | None]:
        """Return a FlinkJob's spec with the content that it refers to, and the resolved reference if the spec has one.

        Return any other spec unchanged, also one that is not valid. Every call reads the ConfigMap, because users often
        edit the FlinkJob and the ConfigMap together.

        Args:
            known: the reference that was resolved before.

        Raises:
            SpecError: the ConfigMap or the branch does not exist, or has no program.
            KubeError: the API server does not respond.
        """
        job = raw.get("job")
        source = job.get("source") if isinstance(job, dict) else None
        if not isinstance(job, dict) or not isinstance(source, dict) or len(source) != 1:
            return raw, None
        try:
            if "configMap" in source:
                name = ConfigMapSource.model_validate(source["configMap"]).name
                return {**raw, "job": {**job, "source": {"files": await self._files(name)}}}, None
            git = GitSource.model_validate(source["git"]) if "git" in source else None
        except ValueError:  # the check of the spec reports it
            return raw, None
        if git is None or git.ref is None or git.commit is not None:
            return raw, None
        nonce = job.get("restartNonce")
        if known is None or (known.url, known.ref, known.restart_nonce) != (git.url, git.ref, nonce):
            commit = await self._commit(git, git.ref)
            known = ResolvedRef(url=git.url, ref=git.ref, restart_nonce=nonce, commit=commit)
        resolved = git.model_copy(update={"ref": None, "commit": known.commit}).to_manifest()
        return {**raw, "job": {**job, "source": {"git": resolved}}}, known

    async def _files(self, name: str) -> dict[str, str]:
        found = await self._read("ConfigMap", name, "configMap")
        files: dict[str, str] = found.get("data") or {}
        field = f"{_FIELD}.configMap ({name})"
        problems = list(file_problems(files, field))
        if found.get("binaryData"):
            names = ", ".join(sorted(found["binaryData"])[:10])
            remedy = "Put files that are not UTF-8 text into an archive, and set source.url and source.sha256."
            problems.append(Problem(field, f"binary files are not supported: {names}", remedy))
        elif not files:
            problems.append(
                Problem(
                    field, "the ConfigMap has no files", "Add the files of the program to the data of the ConfigMap."
                )
            )
        if problems:
            raise SpecError(tuple(problems))
        return files

    async def _commit(self, git: GitSource, ref: str) -> str:
        problem = self._limits.git_problem(git.url)
        if problem is not None:
            raise SpecError((problem,))
        credentials = None
        if git.secret_name is not None:
            if not git.url.startswith("https://"):
                raise _refused(
                    "git.secretName", "http would send the password in plain text", "Set git.url to an https URL."
                )
            secret = await self._read("Secret", git.secret_name, "git.secretName")
            data = secret_texts(secret)
            if secret.get("type") == ACCOUNT_TOKEN or not {"username", "password"} <= data.keys():
                remedy = "Create a Secret of the type kubernetes.io/basic-auth."
                raise _refused("git.secretName", f"Secret {git.secret_name} has no username and password", remedy)
            credentials = Credentials(data["username"], data["password"])
        return await self._resolve(git.url, ref, credentials)

    async def _read(self, kind: str, name: str, field: str) -> Manifest:
        try:
            found = await self._cluster.get(SECRET if kind == "Secret" else CONFIG_MAP, self._namespace, name)
        except Denied as error:
            remedy = f"Give the operator the right to get the {kind}."
            raise _refused(field, f"{kind} {name} cannot be read: {error}", remedy) from error
        if found is None:
            raise _refused(field, f"{kind} {name} does not exist", f"Create it in the namespace {self._namespace}.")
        return found


def _refused(field: str, message: str, remedy: str) -> SpecError:
    return SpecError((Problem(f"{_FIELD}.{field}", message, remedy),))
