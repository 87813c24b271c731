"""The settings of a program's job."""

from __future__ import annotations

import os
from dataclasses import replace

from penstock.common.config import options
from penstock.common.configuration import Configuration
from penstock.common.program.archives import working_folder
from penstock.common.program.import_path import import_path
from penstock.graph.program import Program
from penstock.jobmanager.job.settings import JobSettings


def settings_of(program: Program) -> JobSettings:
    """Return the settings of the program's job, with the folder of its archives and the import path of its workers."""
    settings = JobSettings.from_configuration(program.configuration)
    archives = Configuration(program.configuration).get(options.PYTHON_ARCHIVES)
    settings = replace(settings, working_folder=working_folder(archives))
    if program.user_script is not None:
        settings.python_path.append(os.path.dirname(os.path.abspath(program.user_script)))
    settings.python_path.extend(entry for entry in import_path() if entry not in settings.python_path)
    return settings
