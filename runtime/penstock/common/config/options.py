"""Every configuration key Penstock knows: type, default, meaning.

Keys are flat and, where Flink has the thing, Flink's; what only Penstock has begins with `penstock.`.
"""

from __future__ import annotations

from datetime import timedelta

from penstock.common.config.option import (
    choice_option,
    duration_option,
    flag_option,
    float_option,
    fraction_option,
    int_option,
    list_option,
    map_option,
    size_option,
    text_option,
)

PARALLELISM = int_option(
    "parallelism.default", 1, "Parallelism of operators that set none; the command line's -p sets it.", least=1
)
JOB_NAME = text_option("pipeline.name", None, "Name of the job when the program gives none to execute().")
MAX_PARALLELISM = int_option(
    "pipeline.max-parallelism",
    None,
    "Number of key groups: the highest parallelism the job can ever be rescaled to, fixed for the life of its state; "
    "not set: 128.",
    least=1,
)
AUTO_WATERMARK_INTERVAL = duration_option(
    "pipeline.auto-watermark-interval",
    timedelta(milliseconds=200),
    "How often periodic watermark generators are asked; 0 = after every batch.",
)
OPERATOR_CHAINING = flag_option(
    "pipeline.operator-chaining.enabled",
    True,
    "Fuse operators without an exchange between them.",
    "pipeline.operator-chaining",
)
OBJECT_REUSE = flag_option(
    "pipeline.object-reuse", False, "Kept for Flink's programs; operators always pass references."
)
AUTO_GENERATE_UIDS = flag_option(
    "pipeline.auto-generate-uids",
    True,
    "false: an operator without a uid is refused, as production jobs should have it.",
)
GLOBAL_JOB_PARAMETERS = map_option(
    "pipeline.global-job-parameters", "Parameters every function reads with RuntimeContext.get_job_parameter."
)
JARS = list_option("pipeline.jars", "Kept for Flink's programs; connectors are part of the image.")
CLASSPATHS = list_option("pipeline.classpaths", "Kept for Flink's programs; connectors are part of the image.")
PYTHON_FILES = list_option(
    "python.files", "Files and folders put on the Python path of the program and of its workers."
)
PYTHON_ARCHIVES = list_option(
    "python.archives",
    "Archives that functions find unpacked in their working directory, by the archive's name, or by what stands behind it: model.zip#model.",
)
RUNTIME_MODE = choice_option(
    "execution.runtime-mode",
    ("STREAMING", "BATCH", "AUTOMATIC"),
    "STREAMING",
    "BATCH: rolling aggregates give one final result for each key; AUTOMATIC: BATCH if every source is bounded.",
)
BUFFER_TIMEOUT = duration_option(
    "execution.buffer-timeout.interval",
    timedelta(milliseconds=25),
    "Of the pipelined runner: a record waits about that long at most for others to travel with, at every exchange; 0: not "
    "at all. Longer costs less CPU time. The batched runner: see penstock.epoch.target.",
    "execution.buffer-timeout",
)
BUFFER_TIMEOUT_ENABLED = flag_option(
    "execution.buffer-timeout.enabled",
    True,
    "Of the pipelined runner; false: records wait until a buffer is full, or for the next epoch.",
)

CHECKPOINT_INTERVAL = duration_option(
    "execution.checkpointing.interval", None, "Time between two checkpoints; not set or 0: no checkpoints."
)
CHECKPOINT_MODE = choice_option(
    "execution.checkpointing.mode",
    ("EXACTLY_ONCE", "AT_LEAST_ONCE"),
    "EXACTLY_ONCE",
    "AT_LEAST_ONCE: the pipelined runner goes on with what comes behind a barrier until that has come from everywhere; after a "
    "failure state and sinks may have records twice. Savepoints that end a job, rescales and batch mode are exactly-once always.",
)
CHECKPOINT_TIMEOUT = duration_option(
    "execution.checkpointing.timeout", timedelta(minutes=10), "A checkpoint that takes longer is abandoned."
)
CHECKPOINT_MIN_PAUSE = duration_option(
    "execution.checkpointing.min-pause",
    timedelta(0),
    "Least time from the end of a checkpoint to the start of the next.",
)
MAX_CONCURRENT_CHECKPOINTS = int_option(
    "execution.checkpointing.max-concurrent-checkpoints",
    1,
    "Kept for Flink's programs; one checkpoint is under way at a time, and one that is due meanwhile follows it.",
    least=1,
)
TOLERABLE_FAILED_CHECKPOINTS = int_option(
    "execution.checkpointing.tolerable-failed-checkpoints",
    0,
    "How many checkpoints in a row may fail before the job fails over.",
)
MAX_UNCOMMITTED_CHECKPOINTS = int_option(
    "execution.checkpointing.max-uncommitted-checkpoints",
    3,
    "Periodic checkpoints wait while sinks have not carried out the commits of so many complete ones.",
    least=1,
)
CHECKPOINT_RETENTION = choice_option(
    "execution.checkpointing.externalized-checkpoint-retention",
    ("DELETE_ON_CANCELLATION", "RETAIN_ON_CANCELLATION", "NO_EXTERNALIZED_CHECKPOINTS"),
    "NO_EXTERNALIZED_CHECKPOINTS",
    "Whether the checkpoints stay when the job is cancelled.",
)
UNALIGNED_CHECKPOINTS = flag_option(
    "execution.checkpointing.unaligned.enabled",
    False,
    "Kept for Flink's programs; an epoch's end is a barrier without anything in flight.",
    "execution.checkpointing.unaligned",
)
FORCE_UNALIGNED_CHECKPOINTS = flag_option(
    "execution.checkpointing.unaligned.forced",
    False,
    "Kept for Flink's programs; see execution.checkpointing.unaligned.enabled.",
)
ALIGNED_CHECKPOINT_TIMEOUT = duration_option(
    "execution.checkpointing.aligned-checkpoint-timeout",
    timedelta(0),
    "Kept for Flink's programs; see execution.checkpointing.unaligned.enabled.",
)
CHECKPOINT_DIRECTORY = text_option(
    "execution.checkpointing.dir",
    None,
    "URL under which checkpoints are kept: s3://…, file://….",
    "state.checkpoints.dir",
)
SAVEPOINT_DIRECTORY = text_option(
    "execution.checkpointing.savepoint-dir", None, "URL under which savepoints are written.", "state.savepoints.dir"
)
RETAINED_CHECKPOINTS = int_option(
    "execution.checkpointing.num-retained",
    1,
    "How many completed checkpoints are kept.",
    "state.checkpoints.num-retained",
    least=1,
)
INCREMENTAL_CHECKPOINTS = flag_option(
    "execution.checkpointing.incremental",
    True,
    "Kept for Flink's programs; both backends upload only what changed since the last checkpoint.",
    "state.backend.incremental",
)
FILE_MERGING = flag_option(
    "execution.checkpointing.file-merging.enabled",
    True,
    "Put the small state files (up to 1 MiB) that one task writes for a checkpoint into one object.",
)
FILE_MERGING_MAX_SIZE = size_option(
    "execution.checkpointing.file-merging.max-file-size",
    32 << 20,
    "The largest object that small state files are put together in.",
    least=1 << 10,
)
STATE_BACKEND = choice_option(
    "state.backend.type",
    ("hashmap", "rocksdb"),
    "hashmap",
    "Where keyed state lives: Python objects in memory, or RocksDB on local disk for state larger than memory.",
    "state.backend",
)
ROCKSDB_LOCAL_DIRECTORY = text_option(
    "state.backend.rocksdb.localdir",
    None,
    "Local folder of RocksDB's files, or several, separated by commas, which the slots share out; not set: a folder "
    "under io.tmp.dirs.",
)
ROCKSDB_PREDEFINED_OPTIONS = choice_option(
    "state.backend.rocksdb.predefined-options",
    ("DEFAULT", "SPINNING_DISK_OPTIMIZED", "SPINNING_DISK_OPTIMIZED_HIGH_MEM", "FLASH_SSD_OPTIMIZED"),
    "DEFAULT",
    "A set of RocksDB options that suits a kind of disk.",
)
ROCKSDB_TRANSFER_THREADS = int_option(
    "state.backend.rocksdb.checkpoint.transfer.thread.num", 4, "Threads that upload and download state files.", least=1
)
ROCKSDB_FIXED_PER_SLOT = size_option(
    "state.backend.rocksdb.memory.fixed-per-slot",
    None,
    "RocksDB's memory in a slot, shared by all its operators; stronger than taskmanager.memory.managed.size.",
)
ROCKSDB_WRITE_BUFFER_RATIO = fraction_option(
    "state.backend.rocksdb.memory.write-buffer-ratio",
    0.5,
    "Share of RocksDB's memory that is write buffers; the rest is block cache.",
)
CHANGELOG_STATE_BACKEND = flag_option(
    "state.changelog.enabled", False, "Kept for Flink's programs; the hashmap backend always writes a changelog."
)
RECOVERY_PATH = text_option(
    "execution.state-recovery.path",
    None,
    "Savepoint or checkpoint the job starts from.",
    "execution.savepoint.path",
)
RECOVERY_FROM_LOCAL = flag_option(
    "execution.state-recovery.from-local",
    True,
    "Restore RocksDB's files from copies on the TaskManager's disk where there are any (task-local recovery), and keep such copies.",
    "state.backend.local-recovery",
)
IGNORE_UNCLAIMED_STATE = flag_option(
    "execution.state-recovery.ignore-unclaimed-state",
    False,
    "Start even if the snapshot holds state no operator asks for; what is dropped is listed.",
    "execution.savepoint.ignore-unclaimed-state",
)

RESTART_STRATEGY = choice_option(
    "restart-strategy.type",
    (
        "none",
        "off",
        "disable",
        "fixed-delay",
        "fixeddelay",
        "failure-rate",
        "failurerate",
        "exponential-delay",
        "exponentialdelay",
        "default",
    ),
    "default",
    "What happens after a failure; default: exponential-delay with checkpoints, none without.",
    "restart-strategy",
)
FIXED_DELAY_ATTEMPTS = int_option("restart-strategy.fixed-delay.attempts", 1, "Restarts before the job fails.")
FIXED_DELAY = duration_option("restart-strategy.fixed-delay.delay", timedelta(seconds=1), "Pause before each restart.")
FAILURE_RATE_MAX = int_option(
    "restart-strategy.failure-rate.max-failures-per-interval",
    1,
    "Failures within the interval that are survived.",
    least=1,
)
FAILURE_RATE_INTERVAL = duration_option(
    "restart-strategy.failure-rate.failure-rate-interval",
    timedelta(minutes=1),
    "The interval in which failures are counted.",
)
FAILURE_RATE_DELAY = duration_option(
    "restart-strategy.failure-rate.delay", timedelta(seconds=1), "Pause before each restart."
)
EXPONENTIAL_INITIAL = duration_option(
    "restart-strategy.exponential-delay.initial-backoff", timedelta(seconds=1), "Pause before the first restart."
)
EXPONENTIAL_MAX = duration_option(
    "restart-strategy.exponential-delay.max-backoff", timedelta(minutes=1), "The longest pause before a restart."
)
EXPONENTIAL_MULTIPLIER = float_option(
    "restart-strategy.exponential-delay.backoff-multiplier", 1.5, "Factor from one pause to the next."
)
EXPONENTIAL_RESET = duration_option(
    "restart-strategy.exponential-delay.reset-backoff-threshold",
    timedelta(hours=1),
    "After running that long without a failure the pause starts from the initial one again.",
)
EXPONENTIAL_JITTER = float_option(
    "restart-strategy.exponential-delay.jitter-factor", 0.1, "Part of the pause that is random, 0 to 1."
)
EXPONENTIAL_ATTEMPTS = int_option(
    "restart-strategy.exponential-delay.attempts-before-reset-backoff",
    None,
    "Restarts without a quiet time between them before the job fails; not set: no limit.",
    least=1,
)

SCHEDULER = choice_option(
    "jobmanager.scheduler",
    ("default", "adaptive"),
    "default",
    "With fewer slots than the parallelism needs: default waits for them, adaptive goes on with those that are there.",
)
JOBMANAGER_ADDRESS = text_option(
    "jobmanager.rpc.address", None, "Host workers reach the JobManager at; not set: its own."
)
JOBMANAGER_PORT = int_option("jobmanager.rpc.port", 7077, "Port workers register at.", least=1)
SHUTDOWN_ON_FINISH = flag_option(
    "execution.shutdown-on-application-finish", True, "Whether the JobManager's process ends with its job."
)
JOBSTORE_CAPACITY = int_option(
    "jobstore.max-capacity",
    100,
    "How many ended jobs a JobManager of several jobs still tells about; the oldest go first.",
    least=1,
)
JOBSTORE_EXPIRATION = duration_option(
    "jobstore.expiration-time",
    timedelta(hours=1),
    "How long a JobManager tells about an ended job after others have come; of the last ones it tells until it ends.",
)
TASK_SLOTS = int_option(
    "taskmanager.numberOfTaskSlots",
    1,
    "Slots of one TaskManager. Not set, a program that starts its own cluster has as many in the first one as its first job needs.",
    least=1,
)
JOBMANAGER_PROCESS_SIZE = size_option(
    "jobmanager.memory.process.size",
    None,
    "What the JobManager's container may use; the operator sets it to the limit of the pod. The heap follows from it.",
)
JOBMANAGER_HEAP = size_option(
    "jobmanager.memory.heap.size",
    None,
    "Heap of the JVM of Spark's driver, at least 480mb, which Spark asks for; not set: half of what Python (128mb) and JVM overhead leave of "
    "jobmanager.memory.process.size, at most 640mb, which it is without that.",
)
TASKMANAGER_PROCESS_SIZE = size_option(
    "taskmanager.memory.process.size",
    None,
    "What a TaskManager's container may use; the operator sets it to the limit of the pod. 112mb of it are the worker's own, "
    "its JVM has a part, the rest is shared out equally among the slots.",
)
HEAP_FRACTION = fraction_option(
    "penstock.memory.heap.fraction",
    0.35,
    "Share of a worker's memory that is meant for the heap of its JVM, at least 128mb, at most 512mb and 212mb for each further slot; "
    "penstock.executor.memory-mb says it outright.",
)
JVM_OVERHEAD = size_option(
    "penstock.memory.jvm-overhead",
    96 * 2**20,
    "What a JVM takes outside of its heap: classes, code, threads, buffers; a worker's has 16mb more for each further slot.",
)
MANAGED_FRACTION = fraction_option(
    "taskmanager.memory.managed.fraction",
    0.4,
    "Share that RocksDB gets (block caches and write buffers) of what the JVM leaves of a worker's memory; Python has the rest. "
    "Counts with state.backend.type: rocksdb and taskmanager.memory.process.size.",
)
MANAGED_SIZE = size_option(
    "taskmanager.memory.managed.size",
    None,
    "RocksDB's memory in a TaskManager, in equal parts for its slots; not set: by taskmanager.memory.managed.fraction.",
)
REST_PORT = int_option("rest.port", 8081, "Port of the REST API and the dashboard; -1 disables both.", least=-1)
REST_ADDRESS = text_option(
    "rest.address", "localhost", "Kept for Flink's configurations; commands are told the address with --master."
)
REST_BIND_ADDRESS = text_option("rest.bind-address", "localhost", "Address the REST API listens on.")
HIGH_AVAILABILITY = choice_option(
    "high-availability.type",
    ("none", "kubernetes", "file"),
    "none",
    "kubernetes or file: a second JobManager may start while the first still runs, so storage must have conditional "
    "writes; the newest one leads, by claims beside the checkpoints.",
    "high-availability",
)
HIGH_AVAILABILITY_DIRECTORY = text_option(
    "high-availability.storageDir", None, "Kept for Flink's configurations; claims to lead are beside the checkpoints."
)
CLUSTER_ID = text_option(
    "kubernetes.cluster-id", None, "Name of the FlinkJob, noted by the operator.", "high-availability.cluster-id"
)
KUBERNETES_NAMESPACE = text_option("kubernetes.namespace", None, "Namespace of the FlinkJob, noted by the operator.")
LEADER_LEASE = text_option("kubernetes.leader-lease", None, "Name kept free for a Lease, noted by the operator.")
REST_TOKEN_FILE = text_option(
    "security.rest.token-file", None, "File with the bearer token the REST API asks for; not set: it asks for none."
)
REST_READER_TOKEN_FILE = text_option(
    "security.rest.reader-token-file",
    None,
    "File with a second token, which may only look; counts beside security.rest.token-file.",
)
REST_ALLOWED_HOSTS = list_option(
    "security.rest.allowed-hosts",
    "Names the REST API may be asked for by, besides localhost, addresses and the machine's name; *.example.com: all below. "
    "Not needed with a token, where any name will do unless some are given.",
)
SPARK_SECRET_FILE = text_option(
    "security.spark.secret-file",
    None,
    "File with the secret that master and workers prove to each other and derive their TLS key from; they do not start without.",
)
ARCHIVE_DIRECTORY = text_option(
    "jobmanager.archive.fs.dir",
    None,
    "Folder where a job that has ended leaves an archive of what REST tells of it, for `penstock history`; not set: nothing is archived.",
)
METRICS_DELIMITER = text_option(
    "metrics.scope.delimiter", ".", "What stands between the parts of a metric's identifier."
)
TMP_DIRECTORIES = text_option("io.tmp.dirs", None, "Local working folder; not set: the system's.")
LATENCY_INTERVAL = duration_option(
    "metrics.latency.interval",
    timedelta(0),
    "How often a source sends a latency marker, by which every operator tells how long records take to it; 0: there are none.",
)
METRICS_REPORTERS = text_option(
    "metrics.reporters",
    None,
    "Names of reporters that metrics are sent by, separated by commas; metrics.reporter.<name>.* are settings of one. Prometheus needs none.",
)
TRACES_REPORTERS = text_option(
    "traces.reporters",
    None,
    "The same for traces of checkpoints, starts and rescales; traces.reporter.<name>.* are settings of one.",
)
LOGS_REPORTERS = text_option(
    "logs.reporters",
    None,
    "The same for what the JobManager and TaskManagers log; logs.reporter.<name>.* are settings of one.",
)
LATENCY_GRANULARITY = choice_option(
    "metrics.latency.granularity",
    ("single", "operator", "subtask"),
    "operator",
    "What latencies are told apart by: single, nothing; operator, sources; subtask, subtasks of sources.",
)
TASK_CANCELLATION_INTERVAL = duration_option(
    "task.cancellation.interval",
    timedelta(seconds=30),
    "Time between two attempts to end a cancelled job by force, after the first; a commit that runs is given up at the second.",
)
TASK_CANCELLATION_TIMEOUT = duration_option(
    "task.cancellation.timeout",
    timedelta(seconds=10),
    "A cancelled job that has not ended after that is ended by force: its Spark job is cancelled and its Python workers are killed.",
)
SLOT_REQUEST_TIMEOUT = duration_option(
    "slot.request.timeout", timedelta(minutes=5), "How long an attempt waits for its slots before that is a failure."
)
LOAD_TIMEOUT = duration_option(
    "penstock.start.load-timeout",
    timedelta(minutes=5),
    "How long a worker may take to load the job: its imports, and what was pickled.",
)
RESTORE_TIMEOUT = duration_option(
    "penstock.start.restore-timeout",
    timedelta(hours=1),
    "How long a subtask may take to restore the state of one operator.",
)
OPEN_TIMEOUT = duration_option(
    "penstock.start.open-timeout",
    timedelta(minutes=10),
    "How long `open` of one operator's functions may take in a subtask.",
)
FIRST_EPOCH_TIMEOUT = duration_option(
    "penstock.start.first-epoch-timeout",
    timedelta(minutes=10),
    "How long the first epoch of an attempt may take without any of its tasks loading, restoring or opening.",
)
ENUMERATOR_TIMEOUT = duration_option(
    "penstock.source.enumerator-timeout",
    timedelta(minutes=10),
    "How long a call of a source's enumerator may take, for example to find what there is to be read; 0: for ever.",
)
COMMIT_TIMEOUT = duration_option(
    "penstock.sink.commit-timeout",
    timedelta(minutes=10),
    "How long a call of a sink's committer may take, for example the commit of what one checkpoint has promised; 0: for ever.",
)
S3_ENDPOINT = text_option("s3.endpoint", None, "URL of an S3 server other than Amazon's.")
S3_ACCESS_KEY = text_option("s3.access-key", None, "Access key; not set: the environment's or the pod's identity.")
S3_SECRET_KEY = text_option("s3.secret-key", None, "Secret key that belongs to s3.access-key.")
S3_PATH_STYLE = flag_option("s3.path.style.access", False, "Put the bucket into the path instead of the host name.")
S3_REGION = text_option("s3.endpoint.region", None, "Region to sign requests for.")

IN_PROCESS = "in-process"
RUNNER = choice_option(
    "penstock.runner",
    ("batched", "pipelined", "auto", IN_PROCESS),
    "auto",
    "How an epoch is carried out: batched, a Spark job for each; pipelined, one Spark job over pipelined shuffles with the "
    "epochs as markers in the stream; auto: pipelined, but batched for jobs with DataFrames (`from_spark`, `to_spark`) and "
    "those of more than 16 levels; in-process, all tasks in the program's own process, without Spark: for trying and "
    "debugging, with `python job.py` and `penstock run`.",
)
ONE_JVM = "one-jvm"
LOCAL_CLUSTER = choice_option(
    "penstock.local-cluster",
    (ONE_JVM, "processes"),
    ONE_JVM,
    "What `python job.py` and `penstock run` start: one-jvm, all tasks in the driver's JVM, which takes a third less memory and starts sooner; "
    "processes, an executor's JVM for each TaskManager beside the driver's, as on Kubernetes. Jobs with DataFrames, of more than 64 slots, and with settings of "
    "TaskManagers (taskmanager.numberOfTaskSlots, spark.executor.*) take processes in any case.",
)
EPOCH_TARGET = duration_option(
    "penstock.epoch.target",
    timedelta(milliseconds=200),
    "How long an epoch of the batched runner should take: shorter lowers latency, longer raises throughput. "
    "With little input an epoch ends sooner, and the cluster rests for as long as it took.",
)
EPOCH_MAX_RECORDS = int_option(
    "penstock.epoch.max-records",
    1_000_000,
    "Most records one source subtask reads in an epoch of the batched runner. An epoch reads fewer when those before were long; that "
    "holds for the pipelined runner, too.",
    least=1,
)
EPOCH_MAX_BYTES = int_option(
    "penstock.epoch.max-bytes",
    128 * 2**20,
    "Of the batched runner: about how many bytes of records, as they are in memory, one source subtask reads in an epoch.",
    least=1,
)
EXECUTOR_MEMORY_MB = int_option(
    "penstock.executor.memory-mb",
    None,
    "Heap of a worker's JVM, in which all its slots are, in MiB, at least 480, which Spark asks for; not set: by "
    "penstock.memory.heap.fraction, or 512 and 212 for each further slot without taskmanager.memory.process.size. Python's memory comes on top.",
    least=1,
)
WORKER_HEALTH_PORT = int_option(
    "penstock.worker.health-port",
    -1,
    "Port at which a worker answers /healthz (its loop turns) and /readyz (it is registered with a master); -1: none. Not set: that of "
    "the environment variable PENSTOCK_WORKER_HEALTH_PORT, if there is one.",
    least=-1,
)
LOG_LEVEL_NAMES = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
LOG_LEVEL = choice_option(
    "penstock.log.level",
    LOG_LEVEL_NAMES,
    "INFO",
    "What is logged, by master, workers and the functions of jobs. `python job.py` leaves the levels of its own process to the program.",
)
LOG_LEVELS = map_option(
    "penstock.log.levels",
    "The same by logger, with all below it, such as `penstock.checkpoint:DEBUG,botocore:ERROR`.",
)
LOG_FORMAT = choice_option(
    "penstock.log.format", ("text", "json"), "text", "How records are written; json: one object in each line."
)
LOG_MAX_SIZE = size_option(
    "penstock.log.max-size",
    10 * 2**20,
    "Of each log file and of each file of stdout that REST shows; then it begins anew.",
    least=1 << 16,
)
LOG_MAX_FILES = int_option(
    "penstock.log.max-files", 2, "How many of each are kept, with the one that is written.", least=1
)
DRIVER_PORT = int_option("spark.driver.port", 7078, "Port of the JobManager's Spark driver.", least=1)
DRIVER_BLOCKS_PORT = int_option(
    "spark.blockManager.port", 7079, "Port of the block manager of the JobManager's Spark driver.", least=1
)
ALLOW_DROPPED_STATE = list_option(
    "penstock.restore.allow-dropped",
    "Uids, or uid/state names, whose state may be left behind when a job starts from a snapshot.",
)
