"""A separate JobManager process with the self-verifying job; `python -m tests.integration.engine.selfcheck.main JSON`.

The exit code is 0 (finished), 3 (replaced by another JobManager) or 1 (failed). stderr has its errors. SIGUSR1 makes it print
the stacks of its threads.
"""

from __future__ import annotations

import faulthandler
import json
import signal
import sys
from dataclasses import asdict
from typing import Any

from penstock.common.job_status import JobStatus
from penstock.jobmanager.process.session.embedded import EmbeddedExecutor
from penstock.jobmanager.process.session.session import SubmitOptions
from tests.integration.engine.selfcheck.driver import start
from tests.integration.engine.selfcheck.job import Plan

REST = "REST API: "
"""The prefix of the line with the address of the REST API."""
EXIT_CODES = {JobStatus.FINISHED: 0, JobStatus.SUSPENDED: 3}


def argument(plan: Plan, output: str, settings: dict[str, str], job_id: str, parallelism: int = 2) -> str:
    """Return the argument of the process."""
    return json.dumps(
        {"plan": asdict(plan), "output": output, "settings": settings, "job_id": job_id, "parallelism": parallelism}
    )


def main(spec: dict[str, Any]) -> int:
    faulthandler.register(signal.SIGUSR1)
    submit = SubmitOptions(job_id=spec["job_id"])
    executor = EmbeddedExecutor()
    executor.session.on_line = None
    driver = start(
        executor,
        Plan(**spec["plan"]),
        spec["output"],
        spec["settings"],
        parallelism=spec["parallelism"],
        submit=submit,
    )
    print(f"{REST}{executor.rest_url}", flush=True)
    status = driver.master.wait()
    for failure in driver.failures:
        print(failure, file=sys.stderr)
    print(status.value, flush=True)
    executor.stop()
    return EXIT_CODES.get(status, 1)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
