"""A separate JobManager process with the soak's job; `python -m tests.chaos.jobmanager JSON`.

The exit code is 0 (finished), 3 (replaced by another JobManager), 4 (canceled) or 1 (failed). stderr has its errors. SIGUSR1 makes
it print the stacks of its threads.
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
from tests.chaos.job import Ends, FileEnds, SoakPlan, build
from tests.integration.engine.selfcheck.driver import environment, submitted
from tests.integration.engine.selfcheck.main import REST

FINISHED, FAILED, SUSPENDED, CANCELED = 0, 1, 3, 4
_CODES = {JobStatus.FINISHED: FINISHED, JobStatus.SUSPENDED: SUSPENDED, JobStatus.CANCELED: CANCELED}


def argument(
    plan: SoakPlan, output: str, settings: dict[str, str], job_id: str, parallelism: int, restore: str = ""
) -> str:
    """Return the argument of the process. `restore` is a savepoint to start from."""
    return json.dumps(
        {
            "plan": asdict(plan),
            "output": output,
            "settings": settings,
            "job_id": job_id,
            "parallelism": parallelism,
            "restore": restore,
        }
    )


def main(spec: dict[str, Any]) -> int:
    faulthandler.register(signal.SIGUSR1)
    executor = EmbeddedExecutor()
    executor.session.on_line = None
    env = environment(spec["settings"], spec["parallelism"])
    plan = SoakPlan(**spec["plan"])
    build(env, plan, _kafka(plan) if plan.kafka else FileEnds(plan, spec["output"]))
    driver = submitted(executor, env, "soak", SubmitOptions(job_id=spec["job_id"], restore_path=spec["restore"]))
    print(f"{REST}{executor.rest_url}", flush=True)
    status = driver.master.wait()
    for failure in driver.failures:
        print(failure, file=sys.stderr)
    print(status.value, flush=True)
    executor.stop()
    return _CODES.get(status, FAILED)


def _kafka(plan: SoakPlan) -> Ends:
    from tests.chaos.kafka_ends import KafkaEnds

    return KafkaEnds(plan)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
