"""The remains of a job that has ended: in storage, on the machine, and as processes."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import s3fs

from penstock.checkpoint.files.codec import decode_manifest, files_of
from tests.chaos.running_job import RunningJob

_PATIENCE_S = 20.0
"""Seconds after which the processes of a killed JobManager notice it."""


def memory(job: RunningJob) -> dict[str, float]:
    """Return the proportional set size in MB of all processes of the job and of the JobManager's, and the number of processes."""
    pids = job.pids
    return {"all": _pss_mb(pids), "JobManager": _pss_mb(pids[:1]), "processes": len(pids)}


def _pss_mb(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return round(total / 1024, 1)


def processes_left(job: RunningJob) -> list[str]:
    """Return the command lines of processes that the job's ended JobManagers have left."""
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until and any(master.left for master in job.masters):
        time.sleep(0.2)
    return [process.command[:200] for master in job.masters for process in master.left]


def folders_left(job: RunningJob) -> dict[str, int]:
    """Return how many entries the processes left in their temporary folder, by kind of name."""
    names = (path.name for path in job.temporary.iterdir())
    return dict(Counter("-".join(name.split("-")[:-1]) or name for name in names))


def objects_left(job: RunningJob) -> dict[str, Any]:
    """Return the objects in the job's bucket, except output and objects that must stay (savepoints, the newest claim and base)."""
    fs = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False, **job.s3.storage_options())
    checkpoints = f"{job.bucket}/checkpoints/{job.job_id}/"
    found = Counter(path.removeprefix(checkpoints).split("/")[0] for path in fs.find(checkpoints))
    uploads = fs.call_s3("list_multipart_uploads", Bucket=job.bucket).get("Uploads", [])
    return {
        "checkpoints": dict(found),
        "unfinished uploads": len(uploads),
        "savepoints": _savepoints(fs, f"{job.bucket}/savepoints/"),
    }


def _savepoints(fs: s3fs.S3FileSystem, root: str) -> dict[str, int]:
    """Return counts of complete savepoints, of folders without a manifest, and of files in complete savepoints that no manifest names."""
    folders: dict[str, set[str]] = {}
    for path in fs.find(root):
        folder, _, file = path.removeprefix(root).partition("/")
        if folder.startswith("doomed-"):
            inner, _, file = file.partition("/")
            folder = f"{folder}/{inner}"
        folders.setdefault(folder, set()).add(file)
    whole = {folder: files for folder, files in folders.items() if "_metadata" in files}
    unnamed = 0
    for folder, files in whole.items():
        manifest = decode_manifest(fs.cat_file(f"{root}{folder}/_metadata"), folder)
        unnamed += len(files - {file.path for file in files_of(manifest)} - {"_metadata"})
    return {"whole": len(whole), "not whole": len(folders) - len(whole), "unnamed files": unnamed}
