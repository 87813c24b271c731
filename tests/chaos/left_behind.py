"""What a job that has ended has left: in storage, on the machine, running."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import s3fs

from penstock.checkpoint.files.codec import decode_manifest, files_of
from tests.chaos.running_job import RunningJob

_PATIENCE_S = 20.0
"""Processes of a JobManager that was killed notice it by then."""


def memory(job: RunningJob) -> dict[str, float]:
    """Proportional set size in MB of all of the job's processes, of the JobManager's own, and how many there are."""
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
    """Command lines of what still lives of the job's ended JobManagers."""
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until and any(master.left for master in job.masters):
        time.sleep(0.2)
    return [process.command[:200] for master in job.masters for process in master.left]


def folders_left(job: RunningJob) -> dict[str, int]:
    """By kind of name, how many entries the processes left in their temporary folder."""
    names = (path.name for path in job.temporary.iterdir())
    return dict(Counter("-".join(name.split("-")[:-1]) or name for name in names))


def objects_left(job: RunningJob) -> dict[str, Any]:
    """In the job's bucket, apart from output and from what is meant to stay (savepoints, the newest claim and base)."""
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
    """Whole ones; folders without a manifest; files that no manifest names, in whole ones."""
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
