"""The output of a session's programs: what they print, and their logs. It is kept as long as one of their jobs is shown."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from contextlib import suppress

from penstock.common.configuration import Configuration
from penstock.common.logs.log_settings import LogSettings
from penstock.common.logs.redaction import Redaction
from penstock.jobmanager.cluster.executor.executor_output import ExecutorOutput


class ProgramOutputs:
    """Files in a folder.

    Args:
        settings: settings of the cluster, with the limits of logs.
    """

    def __init__(self, folder: str, settings: Mapping[str, str]) -> None:
        self._folder, self._settings = folder, dict(settings)
        self._log = LogSettings.from_configuration(Configuration(settings))
        self._of_ended: dict[str, ExecutorOutput] = {}

    def new(self, name: str, configuration: Mapping[str, str]) -> ExecutorOutput:
        """Return the output of a program, without the secrets of the cluster's settings and of the program's configuration."""
        return ExecutorOutput(self._folder, name, self._log, Redaction.of({**self._settings, **configuration}))

    def keep(self, job_id: str, output: ExecutorOutput) -> None:
        """Keep the output of the program of an ended job."""
        self._of_ended[job_id] = output

    def of_ended(self, job_id: str) -> ExecutorOutput | None:
        return self._of_ended.get(job_id)

    def forget(self, job_id: str) -> None:
        """Delete the output of a job's program unless another of its jobs is kept."""
        output = self._of_ended.pop(job_id, None)
        if output is not None and output not in self._of_ended.values():
            self.delete(output)

    def delete(self, output: ExecutorOutput) -> None:
        for file in (output.log, output.stdout):
            for path in glob.glob(f"{glob.escape(file.path)}*"):
                with suppress(FileNotFoundError):
                    os.unlink(path)
