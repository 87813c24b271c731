"""Write a job's archive when it has ended."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock.common.config import options
from penstock.common.configuration import Configuration
from penstock.jobmanager.history.archive import Archives, archive_of
from penstock.jobmanager.job.settings import object_store_options

if TYPE_CHECKING:
    from penstock.jobmanager.job.job_master import JobMaster
    from penstock.jobmanager.process.session.dispatcher import Dispatcher

logger = logging.getLogger(__name__)


def archive_job(dispatcher: Dispatcher, job: JobMaster) -> None:
    """Write the archive if the job's configuration names a folder (`jobmanager.archive.fs.dir`). Failures are only logged."""
    from penstock.jobmanager.process.session.gateway import (
        DispatcherGateway,  # REST's shapes, whose import would slow down a small job
    )

    settings = Configuration(job.settings.configuration)
    folder = settings.get(options.ARCHIVE_DIRECTORY)
    if not folder:
        return
    try:
        gateway = DispatcherGateway(dispatcher, settings.to_dict(), list, lambda: None)
        path = Archives(folder, object_store_options(settings)).write(archive_of(gateway, job.job_id))
        logger.info("the archive of job %s is %s", job.job_id, path)
    except Exception as error:
        logger.warning("job %s is not archived: %s", job.job_id, error)
