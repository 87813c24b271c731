"""`StreamExecutionEnvironment`: the start of a program, and the access to the executor that runs the program.

Nothing runs until `execute`. Settings have this precedence, from lowest to highest: defaults, `penstock.yaml`, the command line,
and the settings that the program makes here.
"""

from __future__ import annotations

import atexit
import os
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.common.config import options
from penstock.common.configuration import Configuration, load_configuration
from penstock.common.execution_config import ExecutionConfig, checked_parallelism
from penstock.common.program.archives import archive_entry
from penstock.common.program.one_time_warning import warn_no_effect
from penstock.common.program.requirements import installed, missing_packages
from penstock.common.program.user_location import refusal, user_location
from penstock.common.time import TimeLike, as_millis
from penstock.datastream.checkpoint_config import CheckpointConfig
from penstock.datastream.execution_mode import RuntimeExecutionMode
from penstock.datastream.streams.source_methods import SourceMethods
from penstock.graph.execution_plan import execution_plan
from penstock.graph.executor import RecallsPlans, current_executor, remote_executor
from penstock.graph.program import Program, upstream_first
from penstock.graph.transformation import Input, Transformation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.common.job_client import JobClient
    from penstock.common.job_execution_result import JobExecutionResult
    from penstock.common.restart_strategy import RestartStrategyConfiguration
    from penstock.datastream.checkpointing_mode import CheckpointingMode
    from penstock.datastream.slot_sharing_group import SlotSharingGroup
    from penstock.datastream.state_backend import StateBackend
    from penstock.graph.executor import Executor

DEFAULT_JOB_NAME = "Flink Streaming Job"


class StreamExecutionEnvironment(SourceMethods):
    """Context that creates streams from sources and runs the program that uses them.

    >>> env = StreamExecutionEnvironment.get_execution_environment()
    >>> env.set_parallelism(2).enable_checkpointing(timedelta(seconds=10)).get_checkpoint_interval()
    10000
    """

    _default_local_parallelism: ClassVar[int | None] = None

    def __init__(self, configuration: Configuration, executor: Executor | None = None) -> None:
        self._configuration = configuration
        self._executor = executor
        self._config = ExecutionConfig(configuration)
        self._checkpoint_config = CheckpointConfig(configuration)
        self._sinks: list[Transformation] = []
        self._has_executed = False
        self._is_planned = False
        """Whether the program has used the current sinks, for example to read the execution plan."""
        self._slot_sharing_groups: dict[str, SlotSharingGroup] = {}
        self._plans: dict[str, Any] = {}
        """Plans of SQL statements, which the manifests of the jobs keep."""

    @staticmethod
    def get_execution_environment(configuration: Configuration | None = None) -> StreamExecutionEnvironment:
        """Return a new environment.

        Args:
            configuration: settings of the program. They override the command line and `penstock.yaml`.

        Raises:
            InvalidJob: `penstock.yaml` cannot be read, or a setting is wrong.
        """
        merged = load_configuration()
        if configuration is not None:
            merged.add_all(configuration)
        return StreamExecutionEnvironment(merged)

    @staticmethod
    def create_local_environment(parallelism: int | None = None) -> StreamExecutionEnvironment:
        """Return an environment whose jobs run on this machine. The default parallelism is the number of processors."""
        env = StreamExecutionEnvironment.get_execution_environment()
        return env.set_parallelism(parallelism or env.get_default_local_parallelism())

    @staticmethod
    def create_remote_environment(
        host: str,
        port: int = 8081,
        configuration: Configuration | None = None,
        *,
        token: str | None = None,
        ca_file: str | None = None,
        client_certificate: str | None = None,
    ) -> StreamExecutionEnvironment:
        """Return an environment whose jobs run on a session cluster (`penstock session`) with the same versions of Python and Penstock.

        The client sends the modules of the program that are imported when the program is executed. Packages must be installed in the
        cluster.

        Args:
            host: host name of the JobManager, or its URL with the port (`https://flink.example.com`). If it is not a URL, the client
                uses https if a CA file is given or `rest.ssl.enabled` is set. If the cluster has several masters, name all of them,
                separated by commas.
            port: port of the REST API.
            configuration: settings of the program. They override `penstock.yaml`.
            token: bearer token. Default: the content of the file that PENSTOCK_TOKEN_FILE names.
            ca_file: PEM file with the CAs of the JobManager's certificate. Default: PENSTOCK_CA_FILE, then `rest.ssl.ca-file`, then the
                CAs of the system.
            client_certificate: PEM file with a client certificate and its key. Default: PENSTOCK_CLIENT_CERTIFICATE.

        Raises:
            InvalidJob: a setting is wrong, or the token's file cannot be read.
            PenstockError: the URL is not valid, or a TLS file cannot be used. The client connects when a job is executed.
        """
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        settings = env._configuration
        ca_file = ca_file or os.environ.get("PENSTOCK_CA_FILE") or settings.get(options.REST_SSL_CA_FILE)
        client_certificate = client_certificate or os.environ.get("PENSTOCK_CLIENT_CERTIFICATE") or None
        scheme = "https" if ca_file or settings.get(options.REST_SSL_ENABLED) else "http"
        url = ",".join(_url_of(one.strip(), port, scheme) for one in host.split(","))
        executor = remote_executor(url, token or _token_of_environment(), ca_file, client_certificate)
        return StreamExecutionEnvironment(settings, executor)

    # --- settings ---------------------------------------------------------------------------------------------

    def get_config(self) -> ExecutionConfig:
        return self._config

    def get_configuration(self) -> Configuration:
        """Return a copy of all settings."""
        return Configuration(self._configuration)

    def configure(self, configuration: Configuration) -> None:
        """Override settings of the environment with these settings."""
        self._configuration.add_all(configuration)

    def set_parallelism(self, parallelism: int) -> StreamExecutionEnvironment:
        """Set the parallelism of all operators that do not set it themselves."""
        self._config.set_parallelism(parallelism)
        return self

    def get_parallelism(self) -> int:
        return self._config.get_parallelism()

    def set_max_parallelism(self, max_parallelism: int) -> StreamExecutionEnvironment:
        """Set the number of key groups, which is the highest parallelism that the job can ever be rescaled to."""
        self._config.set_max_parallelism(max_parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """Return the number of key groups, or -1 if it is not set."""
        return self._config.get_max_parallelism()

    def get_default_local_parallelism(self) -> int:
        """Return the default parallelism of local environments: the value that the program has set, or the number of processors."""
        return StreamExecutionEnvironment._default_local_parallelism or os.cpu_count() or 1

    def set_default_local_parallelism(self, parallelism: int) -> StreamExecutionEnvironment:
        """Set the parallelism of environments that `create_local_environment` creates after this call."""
        StreamExecutionEnvironment._default_local_parallelism = checked_parallelism(parallelism)
        return self

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode) -> StreamExecutionEnvironment:
        """Set the runtime mode. Set it before you create streams, because it determines the results of rolling aggregates."""
        if not isinstance(execution_mode, RuntimeExecutionMode):
            raise refusal(f"set_runtime_mode takes a RuntimeExecutionMode, got {execution_mode!r}")
        self._configuration.set(options.RUNTIME_MODE, execution_mode.name)
        return self

    def set_buffer_timeout(self, timeout_millis: TimeLike) -> StreamExecutionEnvironment:
        """Set the maximum time that a record waits in a buffer, at every exchange of the pipelined runner.

        Args:
            timeout_millis: time in ms. 0 means to send each record immediately. -1 means to send a buffer when it is full or the epoch ends.
        """
        timeout = as_millis(timeout_millis, "buffer timeout")
        if timeout < -1:
            raise refusal(f"the buffer timeout must be -1, 0 or positive, got {timeout_millis!r}")
        self._configuration.set(options.BUFFER_TIMEOUT_ENABLED, timeout >= 0)
        if timeout >= 0:
            self._configuration.set(options.BUFFER_TIMEOUT, timedelta(milliseconds=timeout))
        return self

    def get_buffer_timeout(self) -> int:
        """Return the timeout in ms, or -1 if only full buffers are sent."""
        enabled = self._configuration.get(options.BUFFER_TIMEOUT_ENABLED)
        return as_millis(self._configuration.get(options.BUFFER_TIMEOUT)) if enabled else -1

    def disable_operator_chaining(self) -> StreamExecutionEnvironment:
        """Disable operator chaining. Use it for debugging, because it makes the job slower."""
        self._configuration.set(options.OPERATOR_CHAINING, False)
        return self

    def is_chaining_enabled(self) -> bool:
        return self._configuration.get(options.OPERATOR_CHAINING)

    def is_chaining_of_operators_with_different_max_parallelism_enabled(self) -> bool:
        return True

    def register_slot_sharing_group(self, slot_sharing_group: SlotSharingGroup) -> StreamExecutionEnvironment:
        """Register a slot sharing group, so that streams can name it. Its resources have no effect."""
        if slot_sharing_group.has_resources:
            from penstock.datastream.slot_sharing_group import NO_RESOURCES, RESOURCES

            warn_no_effect(RESOURCES, NO_RESOURCES)
        self._slot_sharing_groups[slot_sharing_group.get_name()] = slot_sharing_group
        return self

    def set_restart_strategy(self, restart_strategy: RestartStrategyConfiguration) -> StreamExecutionEnvironment:
        """Set the strategy for restarts after a failure. See `RestartStrategies`."""
        self._configuration.add_all(restart_strategy.to_settings())
        return self

    def get_restart_strategy(self) -> RestartStrategyConfiguration:
        from penstock.common.restart_strategy import restart_strategy_of

        enabled = self._checkpoint_config.is_checkpointing_enabled()
        return restart_strategy_of(self._configuration, checkpointing=enabled)

    # --- checkpoints and state --------------------------------------------------------------------------------

    def get_checkpoint_config(self) -> CheckpointConfig:
        return self._checkpoint_config

    def enable_checkpointing(
        self, interval: TimeLike, mode: CheckpointingMode | None = None
    ) -> StreamExecutionEnvironment:
        """Enable periodic checkpoints.

        Args:
            interval: time between two checkpoints, in ms or as a duration.
        """
        self._checkpoint_config.set_checkpoint_interval(interval)
        if mode is not None:
            self._checkpoint_config.set_checkpointing_mode(mode)
        return self

    def get_checkpoint_interval(self) -> int:
        """Return the interval in ms, or -1 if checkpointing is disabled."""
        return self._checkpoint_config.get_checkpoint_interval()

    def get_checkpointing_mode(self) -> CheckpointingMode:
        return self._checkpoint_config.get_checkpointing_mode()

    def get_checkpointing_consistency_mode(self) -> CheckpointingMode:
        return self._checkpoint_config.get_checkpointing_mode()

    def is_unaligned_checkpoints_enabled(self) -> bool:
        return self._checkpoint_config.is_unaligned_checkpoints_enabled()

    def is_force_unaligned_checkpoints(self) -> bool:
        return self._checkpoint_config.is_force_unaligned_checkpoints()

    def set_state_backend(self, state_backend: StateBackend) -> StreamExecutionEnvironment:
        """Set the storage of keyed state. See `penstock.datastream.state_backend`."""
        self._configuration.add_all(state_backend.to_settings())
        return self

    def get_state_backend(self) -> StateBackend:
        from penstock.datastream.state_backend import EmbeddedRocksDBStateBackend, HashMapStateBackend

        rocksdb = self._configuration.get(options.STATE_BACKEND) == "rocksdb"
        return EmbeddedRocksDBStateBackend() if rocksdb else HashMapStateBackend()

    def enable_changelog_state_backend(self, enabled: bool) -> StreamExecutionEnvironment:
        if enabled:
            warn_no_effect("enable_changelog_state_backend", "the hashmap backend always writes a changelog")
        self._configuration.set(options.CHANGELOG_STATE_BACKEND, enabled)
        return self

    def is_changelog_state_backend_enabled(self) -> bool | None:
        """Return whether the changelog state backend is enabled, or None if the program did not set it."""
        if not self._configuration.contains_key(options.CHANGELOG_STATE_BACKEND.key):
            return None
        return self._configuration.get(options.CHANGELOG_STATE_BACKEND)

    def set_default_savepoint_directory(self, directory: str) -> StreamExecutionEnvironment:
        """Set the URL of the directory for savepoints."""
        self._configuration.set(options.SAVEPOINT_DIRECTORY, directory)
        return self

    def get_default_savepoint_directory(self) -> str | None:
        return self._configuration.get(options.SAVEPOINT_DIRECTORY)

    # --- files and packages -----------------------------------------------------------------------------------

    def add_python_file(self, file_path: str) -> None:
        """Add a module, package directory or archive to the Python path of the program and of its workers."""
        path = os.path.abspath(file_path)
        if not os.path.exists(path):
            raise refusal(f"add_python_file: {path} does not exist")
        importable = path if os.path.isdir(path) or path.endswith((".zip", ".whl", ".egg")) else os.path.dirname(path)
        if importable not in sys.path:
            sys.path.insert(0, importable)
        known = self._configuration.get(options.PYTHON_FILES)
        self._configuration.set(options.PYTHON_FILES, [*known, importable] if importable not in known else known)

    def set_python_requirements(self, requirements_file_path: str, requirements_cache_dir: str | None = None) -> None:
        """Add the packages of a requirements file to the Python path of the program and of its workers.

        A package that is installed in the required version is not installed again. Pip installs missing packages into a cache directory,
        which later programs with the same requirements reuse. The directory comes last on the path, so the packages of the engine take
        precedence.

        Args:
            requirements_cache_dir: directory of packages. If it is given, pip installs only from there and downloads nothing.

        Raises:
            InvalidJob: the file does not exist, a package is installed in another version, or pip cannot install a package. The error
                names the packages.
        """
        path = Path(requirements_file_path)
        if not path.is_file():
            raise refusal(f"set_python_requirements: {path} does not exist")
        packages = None if requirements_cache_dir is None else Path(requirements_cache_dir)
        if packages is not None and not packages.is_dir():
            raise refusal(f"set_python_requirements: the folder {packages} does not exist")
        if missing_packages(path):
            folder = str(installed(path, packages))
            if folder not in sys.path:
                sys.path.append(folder)

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> None:
        """Make the content of an archive (.zip, .whl, .egg, .jar, .tar, .tar.gz, .tgz) available to functions.

        Functions read its files as `target_dir/...`, relative to their working directory. The archive is extracted into a cache directory,
        which later programs with the same archive reuse. Functions must not write to the extracted files. Other files in the working
        directory are deleted when the task ends.

        Args:
            target_dir: directory name. Default: the file name of the archive.

        Raises:
            InvalidJob: the file does not exist or is not an archive, an entry points outside its directory, or the path contains a `;`.
                Without `target_dir`, the path must not contain a `#` either.
        """
        entry = archive_entry(archive_path, target_dir)
        known = self._configuration.get(options.PYTHON_ARCHIVES)
        self._configuration.set(options.PYTHON_ARCHIVES, [*known, entry] if entry not in known else known)

    def set_python_executable(self, python_exec: str) -> None:
        warn_no_effect("set_python_executable", "workers use the interpreter of the program")

    def add_jars(self, *jars_path: str) -> None:
        warn_no_effect("add_jars", "connectors are part of the image, and none of them is a jar")

    def add_classpaths(self, *classpaths: str) -> None:
        warn_no_effect("add_classpaths", "connectors are part of the image, and none of them is a jar")

    def register_cached_file(self, file_path: str, name: str, executable: bool = False) -> None:
        warn_no_effect("register_cached_file", "files belong in the job's image, which all processes share")

    # --- execution --------------------------------------------------------------------------------------------

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run the program and wait until it ends. Afterwards the environment has no sinks, so the same script can
        define another program.

        Raises:
            InvalidJob: the program is not valid. Nothing was started.
        """
        return (self._executor or current_executor()).execute(self._take_program(job_name))

    def execute_async(self, job_name: str = DEFAULT_JOB_NAME) -> JobClient:
        """Start the program and return the client of the running job."""
        return (self._executor or current_executor()).execute_async(self._take_program(job_name))

    def get_program(self, job_name: str | None = None) -> Program:
        """Return the program that was built so far.

        Raises:
            InvalidJob: the program is not valid.
        """
        if not self._sinks and self._has_executed:
            raise refusal(
                "no sink was added since the last execute(), so this execute() has nothing to compute",
                "call execute() once, after the last sink, or add the sinks of the next job before it",
            )
        if not self._sinks:
            raise refusal(
                "the program has no sink, so the job has nothing to compute",
                "end a stream with sink_to(), add_sink() or print()",
            )
        self._is_planned = True
        name = job_name or self._configuration.get(options.JOB_NAME) or DEFAULT_JOB_NAME
        program = replace(Program.of(name, self._sinks, self._configuration, _user_script()), plans=dict(self._plans))
        self._check_mode(program.transformations)
        return program

    def get_execution_plan(self) -> str:
        """Return the program as JSON, in the format of Flink's execution plans."""
        return execution_plan(self.get_program())

    def close(self) -> None:
        """Do nothing, because the environment holds no resources."""

    def _recorded_plans(self) -> Mapping[str, Any]:
        """Return the plans in the snapshot from which the next job starts."""
        executor = self._executor or current_executor()
        return executor.recorded_plans(self._configuration) if isinstance(executor, RecallsPlans) else {}

    def _take_program(self, job_name: str | None) -> Program:
        program = self.get_program(job_name)
        self._sinks = []
        self._has_executed, self._is_planned = True, False
        return program

    def _collect(self, job_name: str | None, limit: int | None) -> Iterator[Any]:
        return (self._executor or current_executor()).collect(self._take_program(job_name), limit)

    def _add_sink(self, transformation: Transformation) -> None:
        # `penstock run job.py` compiles the program with the path of the command line, which may be relative.
        if not self._sinks and os.path.abspath(user_location().rpartition(":")[0]) == _user_script():
            atexit.register(self._warn_of_unused_sinks, user_location())
        self._sinks.append(transformation)

    def _warn_of_unused_sinks(self, location: str) -> None:
        """Warn at the end of the program if it did not run its job. Do not warn if an error ended the program: Python prints the error."""
        if self._sinks and not self._is_planned and not hasattr(sys, "last_value"):
            text = (
                f"warning: the program ended without execute(), so the stream that ends at {location} was not computed"
            )
            print(f"{text}\n  remedy: call env.execute() at the end of the program", file=sys.stderr)

    def _emits_only_final_results(self, inputs: Sequence[Input]) -> bool:
        """Return whether rolling aggregates over these inputs emit one final result for each key (batch mode)."""
        mode = self._configuration.get(options.RUNTIME_MODE)
        if mode == "AUTOMATIC":
            return all(_is_bounded(source) for source in upstream_first(edge.upstream for edge in inputs))
        return mode == "BATCH"

    def _check_mode(self, transformations: Sequence[Transformation]) -> None:
        if self._configuration.get(options.RUNTIME_MODE) != "BATCH":
            return
        for transformation in transformations:
            if not _is_bounded(transformation):
                error = refusal(
                    f"source {transformation.name!r} is unbounded, but the program runs in batch mode",
                    "bound the source, or set RuntimeExecutionMode.STREAMING",
                    operator=transformation.name,
                )
                error.location = transformation.user_location
                raise error


def _is_bounded(transformation: Transformation) -> bool:
    return transformation.source is None or transformation.source.bounded


def _user_script() -> str | None:
    """Return the file of the running program."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    return None if path is None else os.path.abspath(path)


def _url_of(host: str, port: int, scheme: str) -> str:
    if "://" in host:
        return host
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _token_of_environment() -> str | None:
    path = os.environ.get("PENSTOCK_TOKEN_FILE")
    if not path:
        return None
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        raise refusal(
            f"the token file {path} cannot be read: {error.strerror}", "correct PENSTOCK_TOKEN_FILE, or give token"
        ) from None
