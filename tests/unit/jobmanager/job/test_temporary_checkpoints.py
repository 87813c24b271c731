"""A job without a checkpoint directory keeps its checkpoints in a temporary folder, which its end deletes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.common.errors import InvalidJob
from penstock.jobmanager.job.checkpoints import JobCheckpoints
from penstock.jobmanager.job.settings import JobSettings

if TYPE_CHECKING:
    from pathlib import Path


def test_a_savepoint_in_the_temporary_folder_is_refused(tmp_path: Path) -> None:
    """The request would report a path that the end of the job deletes."""
    coordinator = JobCheckpoints("job", JobSettings.from_configuration({})).coordinator
    with pytest.raises(InvalidJob, match="no target directory") as refused:
        coordinator.check_savepoint_directory(None)
    assert "penstock stop -p DIR JOB" in refused.value.remedy
    coordinator.check_savepoint_directory(f"file://{tmp_path}")
