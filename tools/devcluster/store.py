"""The images of a cluster. They are loaded into containerd directly, because no registry exists.

The store outlives ``down``, since loading an image takes longer than starting a cluster. A load of an image that is already
there is skipped. The store records, next to the images, the content from which each name was loaded.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

from tools.devcluster.nodeconfig import PAUSE_IMAGE
from tools.errors import ToolError

if TYPE_CHECKING:
    from tools.devcluster.plan import Plan

NAMESPACE = "k8s.io"
"""The containerd namespace that the kubelet uses."""


def prepare(plan: Plan) -> None:
    """Prepare a fresh containerd for the kubelet: remove containers of the last cluster, and load the pause image."""
    old = ctr(plan, "containers", "list", "--quiet").split()
    if old:
        ctr(plan, "containers", "remove", *old)
    archive = plan.root / "pause.tar"
    archive.write_bytes(program_image(PAUSE_IMAGE, plan.binaries / "pause"))
    ctr(plan, "images", "import", str(archive))
    archive.unlink()


def forget_containers(plan: Plan) -> None:
    """Remove the records of the kubelet's containerd plugin about containers that no longer exist."""
    shutil.rmtree(plan.images / "io.containerd.grpc.v1.cri", ignore_errors=True)


def load(plan: Plan, image: str | Path) -> list[str]:
    """Load an image into the cluster, and return its names there.

    ``image`` is the path of a docker or OCI archive, or the name of an image in buildah's store. Raises
    ``ToolError`` if it is neither.
    """
    path = Path(image)
    if path.is_file():
        return _load_archive(plan, path)
    return _load_built(plan, str(image))


def names(plan: Plan) -> list[str]:
    """Return the names of the images in the cluster."""
    listed = ctr(plan, "images", "list", "--quiet").split()
    return [name for name in listed if not name.startswith("sha256:")]


def ctr(plan: Plan, *arguments: str) -> str:
    """Run containerd's client and return its output. Raise ``ToolError`` with the output if it fails."""
    done = subprocess.run(
        ["ctr", "--address", str(plan.containerd_socket), "--namespace", NAMESPACE, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ToolError(
            f"ctr {' '.join(arguments[:4])} failed: {done.stderr.strip()}",
            remedy=f"see {plan.logs / 'containerd.log'}",
        )
    return done.stdout


def _load_archive(plan: Plan, path: Path) -> list[str]:
    with path.open("rb") as archive:
        content = hashlib.file_digest(archive, "sha256").hexdigest()
    loaded = _loaded(plan)
    there = [name for name, of in loaded.items() if of == content]
    if there and set(there) <= set(names(plan)):
        return there
    before = set(names(plan))
    printed = ctr(plan, "images", "import", str(path))
    new = [name for name in names(plan) if name not in before or name in printed]
    _remember(plan, dict.fromkeys(new, content))
    return new


def _load_built(plan: Plan, name: str) -> list[str]:
    try:
        inspection = subprocess.run(
            ["buildah", "inspect", "--type", "image", "--format", "{{.FromImageID}}", name],
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        inspection = None
    if inspection is None or inspection.returncode:
        error = inspection.stderr.strip() if inspection else "buildah is not installed"
        raise ToolError(
            f"neither an archive nor a built image is called {name!r}: {error}",
            remedy="build it (python -m tools.images build), or pass the path of a docker or OCI archive",
        )
    content = inspection.stdout.strip()
    loaded, present = _loaded(plan), set(names(plan))
    if loaded.get(name) == content and name in present:
        return [name]
    same = next((other for other, of in loaded.items() if of == content and other in present), None)
    if same is not None:
        ctr(plan, "images", "tag", "--force", same, name)
    else:
        archive = plan.root / "image.tar"
        try:
            subprocess.run(["buildah", "push", "--quiet", name, f"docker-archive:{archive}:{name}"], check=True)
            ctr(plan, "images", "import", str(archive))
        finally:
            archive.unlink(missing_ok=True)
    _remember(plan, {name: content})
    return [name]


def _loaded(plan: Plan) -> dict[str, str]:
    """Return the content from which each name was loaded last: an image id, or the digest of an archive."""
    try:
        loaded: dict[str, str] = json.loads((plan.images / "loaded.json").read_text())
    except FileNotFoundError:
        return {}
    return loaded


def _remember(plan: Plan, loaded: dict[str, str]) -> None:
    (plan.images / "loaded.json").write_text(json.dumps({**_loaded(plan), **loaded}, indent=1))


def program_image(name: str, program: Path) -> bytes:
    """Return a docker archive of an image that holds and runs one static program. No image tool is necessary."""
    entry = f"/{program.name}"
    layer = _tar({entry[1:]: program.read_bytes()}, mode=0o755)
    config = json.dumps(
        {
            "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Entrypoint": [entry]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }
    ).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]
    return _tar({config_name: config, "layer.tar": layer, "manifest.json": json.dumps(manifest).encode()})


def _tar(files: dict[str, bytes], *, mode: int = 0o644) -> bytes:
    """Return a tar archive whose bytes depend only on the names and contents of the files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
