"""The JobManager: its scheduler, its slots and its ports."""

from __future__ import annotations

from datetime import timedelta

from penstock.common.config.option import choice_option, duration_option, flag_option, int_option, text_option

SCHEDULER = choice_option(
    "jobmanager.scheduler",
    ("default", "adaptive"),
    "default",
    "Behaviour if the cluster has fewer slots than the parallelism needs. default: wait for slots. adaptive: run "
    "with the available slots.",
)
SLOT_PRIORITY = int_option(
    "penstock.slots.priority",
    0,
    "Priority of the job among the jobs of a session cluster that wait for slots. The job with the highest number gets "
    "free slots first. Jobs with the same priority get them in the order of their start. No job loses a slot.",
)
JOBMANAGER_ADDRESS = text_option(
    "jobmanager.rpc.address",
    None,
    "Host under which workers reach the JobManager. Not set: the host of the JobManager.",
)
JOBMANAGER_PORT = int_option("jobmanager.rpc.port", 7077, "Port at which workers register.", minimum=1)
KEEP_EXECUTORS = flag_option(
    "penstock.jobmanager.keep-executors",
    False,
    "Whether executors keep running when the JobManager is killed or crashes. `penstock master` then runs the JobManager in a "
    "child process, which it starts again. Jobs with DataFrames cannot use it.",
)
SHUTDOWN_ON_FINISH = flag_option(
    "execution.shutdown-on-application-finish", True, "Whether the JobManager's process ends when its job ends."
)
JOBSTORE_CAPACITY = int_option(
    "jobstore.max-capacity",
    100,
    "Number of ended jobs that a JobManager of several jobs keeps in its REST API. The oldest jobs are removed first.",
    minimum=1,
)
JOBSTORE_EXPIRATION = duration_option(
    "jobstore.expiration-time",
    timedelta(hours=1),
    "How long a JobManager of several jobs keeps an ended job in its REST API. The JobManager removes expired jobs "
    "when a new job starts.",
)
PROGRAM_RETENTION = duration_option(
    "penstock.program.retention",
    timedelta(days=7),
    "How long a session cluster keeps an uploaded program that no running program uses, since its last upload or start.",
)
TASK_SLOTS = int_option(
    "taskmanager.numberOfTaskSlots",
    1,
    "Slots of one TaskManager. Not set: 1. If a program starts its own cluster, the first TaskManager then has as "
    "many slots as the first job needs.",
    minimum=1,
)
DRIVER_PORT = int_option("spark.driver.port", 7078, "Port of the JobManager's Spark driver.", minimum=1)
DRIVER_BLOCKS_PORT = int_option(
    "spark.blockManager.port", 7079, "Port of the block manager of the JobManager's Spark driver.", minimum=1
)
