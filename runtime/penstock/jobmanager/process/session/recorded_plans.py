"""The plans of SQL statements in the snapshot from which a job starts."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from penstock.checkpoint.files.storage import CheckpointStorage
from penstock.checkpoint.recovery.takeover import preview_recovery
from penstock.checkpoint.savepoint.snapshots import resolve
from penstock.common.configuration import Configuration
from penstock.common.errors import PenstockError
from penstock.jobmanager.job.settings import JobSettings

logger = logging.getLogger(__name__)


def recorded_plans(configuration: Configuration, job_id: str = "", restore_path: str = "") -> Mapping[str, Any]:
    """Return `Manifest.plans` of the snapshot that the job would restore now.

    Return an empty mapping if there is no snapshot. If the snapshot cannot be read, the start of the job reports it, so this function
    only logs the error.

    Args:
        job_id: id of the job. Empty means a new job, which has no checkpoints.
        restore_path: snapshot of the first start. Empty means the path of the configuration, if it has one.
    """
    settings = JobSettings.from_configuration(configuration.to_dict())
    path = restore_path or settings.recovery_path
    try:
        if job_id and settings.checkpoint_dir:
            storage = CheckpointStorage(settings.checkpoint_dir, job_id, settings.object_store_options)
            snapshot = preview_recovery(storage, restore_path=path or None)
        elif path:
            snapshot = resolve(path, settings.object_store_options, check_files=False)
        else:
            return {}
    except PenstockError as error:
        logger.info("the plans of SQL statements in the snapshot cannot be read: %s", error.message)
        return {}
    return {} if snapshot is None else snapshot.manifest.plans
