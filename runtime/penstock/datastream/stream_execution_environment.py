"""`StreamExecutionEnvironment`: where a program starts, and what it is run by.

Nothing runs until `execute`. What counts of the settings, from weak to strong: defaults, `penstock.yaml`, the command
line, and what the program sets here.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, overload

from penstock.common.config import options
from penstock.common.configuration import Configuration, load_configuration
from penstock.common.execution_config import ExecutionConfig, checked_parallelism
from penstock.common.program.archives import archive_entry
from penstock.common.program.one_time_warning import warn_no_effect
from penstock.common.program.requirements import installed, missing_packages
from penstock.common.program.user_location import refusal, user_location
from penstock.common.time import TimeLike, as_millis
from penstock.common.type_info.type_inference import to_type_info
from penstock.datastream import functions as f
from penstock.datastream.checkpoint_config import CheckpointConfig
from penstock.datastream.data_stream import DataStream
from penstock.datastream.execution_mode import RuntimeExecutionMode
from penstock.datastream.streams.checks import checked_function
from penstock.datastream.streams.data_stream import _checked_strategy
from penstock.functions.type_variables import T
from penstock.graph import operations
from penstock.graph.execution_plan import execution_plan
from penstock.graph.executor import current_executor, remote_executor
from penstock.graph.program import Program, upstream_first
from penstock.graph.transformation import Input, Transformation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.common.job_client import JobClient
    from penstock.common.job_execution_result import JobExecutionResult
    from penstock.common.restart_strategy import RestartStrategyConfiguration
    from penstock.common.watermark_strategy import WatermarkStrategy
    from penstock.connectors.source import Source
    from penstock.datastream.checkpointing_mode import CheckpointingMode
    from penstock.datastream.slot_sharing_group import SlotSharingGroup
    from penstock.datastream.state_backend import StateBackend
    from penstock.graph.executor import Executor

DEFAULT_JOB_NAME = "Flink Streaming Job"


class StreamExecutionEnvironment:
    """Makes streams from sources, and runs the program that was written with them.

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
        self._slot_sharing_groups: dict[str, SlotSharingGroup] = {}

    @staticmethod
    def get_execution_environment(configuration: Configuration | None = None) -> StreamExecutionEnvironment:
        """An environment of its own for each call.

        Args:
            configuration: settings of the program; they win over the command line and `penstock.yaml`.

        Raises:
            InvalidJob: `penstock.yaml` cannot be read, or a setting is wrong.
        """
        merged = load_configuration()
        if configuration is not None:
            merged.add_all(configuration)
        return StreamExecutionEnvironment(merged)

    @staticmethod
    def create_local_environment(parallelism: int | None = None) -> StreamExecutionEnvironment:
        """An environment whose jobs run on this machine, with a subtask per processor unless told otherwise."""
        env = StreamExecutionEnvironment.get_execution_environment()
        return env.set_parallelism(parallelism or env.get_default_local_parallelism())

    @staticmethod
    def create_remote_environment(
        host: str, port: int = 8081, configuration: Configuration | None = None, *, token: str | None = None
    ) -> StreamExecutionEnvironment:
        """An environment whose jobs run on a session cluster (`penstock session`) with the same versions of Python and Penstock.

        Modules of the program that were imported when it is executed are sent with it; packages must be installed there.

        Args:
            host: of its JobManager, or a URL (`https://flink.example.com`), which then has the port, too.
            port: of the REST API.
            configuration: settings of the program; they win over `penstock.yaml`.
            token: bearer token; the content of the file that PENSTOCK_TOKEN_FILE names, if it is not given.

        Raises:
            InvalidJob: a setting is wrong, or the token's file cannot be read.
            PenstockError: the URL is none. Whether anybody is there shows when a job is executed.
        """
        url = host if "://" in host else f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        return StreamExecutionEnvironment(env._configuration, remote_executor(url, token or _token_of_environment()))

    # --- settings ---------------------------------------------------------------------------------------------

    def get_config(self) -> ExecutionConfig:
        return self._config

    def get_configuration(self) -> Configuration:
        """A copy of everything set."""
        return Configuration(self._configuration)

    def configure(self, configuration: Configuration) -> None:
        """Lays these settings over the environment's."""
        self._configuration.add_all(configuration)

    def set_parallelism(self, parallelism: int) -> StreamExecutionEnvironment:
        """Of all operators that set none themselves."""
        self._config.set_parallelism(parallelism)
        return self

    def get_parallelism(self) -> int:
        return self._config.get_parallelism()

    def set_max_parallelism(self, max_parallelism: int) -> StreamExecutionEnvironment:
        """Number of key groups: the highest parallelism the job can ever be rescaled to."""
        self._config.set_max_parallelism(max_parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """-1 if it is not set."""
        return self._config.get_max_parallelism()

    def get_default_local_parallelism(self) -> int:
        """The number of processors, unless it was set."""
        return StreamExecutionEnvironment._default_local_parallelism or os.cpu_count() or 1

    def set_default_local_parallelism(self, parallelism: int) -> StreamExecutionEnvironment:
        """Of environments that `create_local_environment` makes from now on."""
        StreamExecutionEnvironment._default_local_parallelism = checked_parallelism(parallelism)
        return self

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode) -> StreamExecutionEnvironment:
        """Set it before the streams are made: it decides what rolling aggregates give."""
        if not isinstance(execution_mode, RuntimeExecutionMode):
            raise refusal(f"set_runtime_mode takes a RuntimeExecutionMode, got {execution_mode!r}")
        self._configuration.set(options.RUNTIME_MODE, execution_mode.name)
        return self

    def set_buffer_timeout(self, timeout_millis: TimeLike) -> StreamExecutionEnvironment:
        """How long a record waits at most, at every exchange of the pipelined runner, for others to travel with.

        Args:
            timeout_millis: 0: not at all; -1: until a buffer is full, or for the next epoch.
        """
        timeout = as_millis(timeout_millis, "buffer timeout")
        if timeout < -1:
            raise refusal(f"the buffer timeout must be -1, 0 or positive, got {timeout_millis!r}")
        self._configuration.set(options.BUFFER_TIMEOUT_ENABLED, timeout >= 0)
        if timeout >= 0:
            self._configuration.set(options.BUFFER_TIMEOUT, timedelta(milliseconds=timeout))
        return self

    def get_buffer_timeout(self) -> int:
        """ms; -1: buffers wait until they are full."""
        enabled = self._configuration.get(options.BUFFER_TIMEOUT_ENABLED)
        return as_millis(self._configuration.get(options.BUFFER_TIMEOUT)) if enabled else -1

    def disable_operator_chaining(self) -> StreamExecutionEnvironment:
        """Fuse no operators: for debugging, it costs speed."""
        self._configuration.set(options.OPERATOR_CHAINING, False)
        return self

    def is_chaining_enabled(self) -> bool:
        return self._configuration.get(options.OPERATOR_CHAINING)

    def is_chaining_of_operators_with_different_max_parallelism_enabled(self) -> bool:
        return True

    def register_slot_sharing_group(self, slot_sharing_group: SlotSharingGroup) -> StreamExecutionEnvironment:
        """Streams may name the group. Its resources have no effect."""
        if slot_sharing_group.has_resources:
            from penstock.datastream.slot_sharing_group import NO_RESOURCES, RESOURCES

            warn_no_effect(RESOURCES, NO_RESOURCES)
        self._slot_sharing_groups[slot_sharing_group.get_name()] = slot_sharing_group
        return self

    def set_restart_strategy(self, restart_strategy: RestartStrategyConfiguration) -> StreamExecutionEnvironment:
        """What happens after a failure; see `RestartStrategies`."""
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
        """
        Args:
            interval: time between two checkpoints, ms or a length of time.
        """
        self._checkpoint_config.set_checkpoint_interval(interval)
        if mode is not None:
            self._checkpoint_config.set_checkpointing_mode(mode)
        return self

    def get_checkpoint_interval(self) -> int:
        """ms; -1 if there are no checkpoints."""
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
        """Where keyed state lives; see `penstock.datastream.state_backend`."""
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
        """None: nothing was said of it."""
        if not self._configuration.contains_key(options.CHANGELOG_STATE_BACKEND.key):
            return None
        return self._configuration.get(options.CHANGELOG_STATE_BACKEND)

    def set_default_savepoint_directory(self, directory: str) -> StreamExecutionEnvironment:
        """URL under which savepoints are written."""
        self._configuration.set(options.SAVEPOINT_DIRECTORY, directory)
        return self

    def get_default_savepoint_directory(self) -> str | None:
        return self._configuration.get(options.SAVEPOINT_DIRECTORY)

    # --- files and packages -----------------------------------------------------------------------------------

    def add_python_file(self, file_path: str) -> None:
        """Puts a module, package folder or archive on the Python path of the program and of its workers."""
        path = os.path.abspath(file_path)
        if not os.path.exists(path):
            raise refusal(f"add_python_file: there is no {path}")
        importable = path if os.path.isdir(path) or path.endswith((".zip", ".whl", ".egg")) else os.path.dirname(path)
        if importable not in sys.path:
            sys.path.insert(0, importable)
        known = self._configuration.get(options.PYTHON_FILES)
        self._configuration.set(options.PYTHON_FILES, [*known, importable] if importable not in known else known)

    def set_python_requirements(self, requirements_file_path: str, requirements_cache_dir: str | None = None) -> None:
        """Puts what a requirements file asks for on the Python path of the program and of its workers, if it is not there.

        It is looked for by name and exact version. What is missing is installed by pip into a folder of the cache, kept by content
        for the next program, behind the packages that are there: those of the engine stay what they are.

        Args:
            requirements_cache_dir: a folder of packages, to install all from it and nothing from elsewhere.

        Raises:
            InvalidJob: there is no such file, a package is there in another version, or pip cannot install one; names them.
        """
        path = Path(requirements_file_path)
        if not path.is_file():
            raise refusal(f"set_python_requirements: there is no {path}")
        packages = None if requirements_cache_dir is None else Path(requirements_cache_dir)
        if packages is not None and not packages.is_dir():
            raise refusal(f"set_python_requirements: there is no folder {packages}")
        if missing_packages(path):
            folder = str(installed(path, packages))
            if folder not in sys.path:
                sys.path.append(folder)

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> None:
        """Has functions find what is in an archive (.zip, .whl, .egg, .jar, .tar, .tar.gz, .tgz) as `target_dir/...`, relative to their
        working directory.

        It is unpacked into a folder of the cache, kept by content for the next program; functions are not to write there. What they write
        beside it goes when the task ends.

        Args:
            target_dir: the archive's file name, if it is not given.

        Raises:
            InvalidJob: there is no such file, it is no archive, something in it leads out of its folder, or its path has a `;` or, without
                `target_dir`, a `#`.
        """
        entry = archive_entry(archive_path, target_dir)
        known = self._configuration.get(options.PYTHON_ARCHIVES)
        self._configuration.set(options.PYTHON_ARCHIVES, [*known, entry] if entry not in known else known)

    def set_python_executable(self, python_exec: str) -> None:
        warn_no_effect("set_python_executable", "the workers run the interpreter that runs the program")

    def add_jars(self, *jars_path: str) -> None:
        warn_no_effect("add_jars", "connectors are part of the image, and none of them is a jar")

    def add_classpaths(self, *classpaths: str) -> None:
        warn_no_effect("add_classpaths", "connectors are part of the image, and none of them is a jar")

    def register_cached_file(self, file_path: str, name: str, executable: bool = False) -> None:
        warn_no_effect("register_cached_file", "files belong in the job's image, which all processes share")

    # --- sources ----------------------------------------------------------------------------------------------

    def from_source(
        self, source: Source, watermark_strategy: WatermarkStrategy | None, source_name: str, type_info: Any = None
    ) -> DataStream:
        """The stream of a source of `penstock.connectors`.

        Args:
            watermark_strategy: applied to each split of the source on its own; None: no event time.
            type_info: of the records; what the source says if it is not given.
        """
        from penstock.connectors.source import Source as SourceBase

        if not isinstance(source, SourceBase):
            raise refusal(f"from_source takes a Source, got {source!r}", "pass source functions to add_source()")
        strategy = None if watermark_strategy is None else _checked_strategy(watermark_strategy)
        transformation = Transformation(
            source_name,
            operations.Source(source, strategy),
            output_type=to_type_info(type_info) or to_type_info(source.produced_type()),
            description=f"Source: {source_name}",
            user_location=user_location(),
        )
        return DataStream(self, [Input(transformation)], transformation.output_type, transformation)

    @overload
    def from_collection(self, collection: Iterable[T]) -> DataStream[T]: ...
    @overload
    def from_collection(self, collection: Iterable[Any], type_info: Any) -> DataStream: ...
    def from_collection(self, collection: Iterable[Any], type_info: Any = None) -> DataStream:
        """The values of a collection, in order. For examples and tests: the values travel with the program.

        Args:
            type_info: of the values, which are checked against it and made Rows or tuples where it says so.

        Raises:
            InvalidJob: the collection is empty and no type is given, or a value is not of the type.

        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_collection([("KJFK", 21.5)]).get_type()
        TupleTypeInfo([Types.STRING(), Types.DOUBLE()])
        """
        from penstock.connectors.collection import CollectionSource

        if isinstance(collection, str | bytes) or not hasattr(collection, "__iter__"):
            raise refusal(f"from_collection takes a collection of values, got {collection!r}", "write [value]")
        values = list(collection)
        declared = to_type_info(type_info)
        if not values and declared is None:
            raise refusal("from_collection was given an empty collection and no type", "give type_info")
        source = CollectionSource(values, declared)
        return self.from_source(source, None, "Collection Source", declared).force_non_parallel()

    def add_source(
        self, source_func: f.SourceFunction | Source | Any, source_name: str = "Custom Source", type_info: Any = None
    ) -> DataStream:
        """The stream of a source function. A `Source` is taken as well."""
        from penstock.connectors.source import Source as SourceBase

        if isinstance(source_func, SourceBase):
            return self.from_source(source_func, None, source_name, type_info)
        from penstock.connectors.function import FunctionSource

        checked_function(
            source_func, f.SourceFunction, operation="add_source", arguments=None, methods=("run", "cancel")
        )
        declared = to_type_info(type_info)
        stream = self.from_source(FunctionSource(source_func, type_info=declared), None, source_name, declared)
        return stream if isinstance(source_func, f.ParallelSourceFunction) else stream.force_non_parallel()

    def socket_text_stream(
        self, hostname: str, port: int, delimiter: str = "\n", max_retry: int = 0
    ) -> DataStream[str]:
        """The lines that a server sends (`nc -lk 9999`), each at most once: a socket cannot be read again after a failure.

        Args:
            max_retry: how often to connect again when the server cannot be reached or closes; -1: for ever. The job goes on.
        """
        from penstock.connectors.socket import SocketTextSource

        return self.add_source(SocketTextSource(hostname, port, delimiter, max_retry), "Socket Stream", str)

    def read_text_file(self, file_path: str, charset_name: str = "UTF-8") -> DataStream[str]:
        """The lines of a file, or of all files of a folder, once. Any URL fsspec reads is a path."""
        from penstock.datastream.connectors.file_system import FileSource, StreamFormat

        source = FileSource.for_record_stream_format(StreamFormat.text_line_format(charset_name), file_path).build()
        return self.from_source(source, None, f"Read Text File {file_path}", str)

    def create_input(self, input_format: Any, type_info: Any = None) -> DataStream:
        """The records of an input format of `penstock.datastream.formats`."""
        from penstock.connectors.source import Source as SourceBase

        if not isinstance(input_format, SourceBase):
            raise refusal(
                f"create_input takes an input format of penstock.datastream.formats, got {input_format!r}",
                "read files with FileSource.for_bulk_file_format",
            )
        return self.from_source(input_format, None, type(input_format).__name__, type_info)

    def from_spark(
        self,
        df_factory: Callable[[Any], Any],
        source_name: str = "Spark Source",
        type_info: Any = None,
        *,
        watermark_strategy: WatermarkStrategy | None = None,
        bounded: bool = False,
    ) -> DataStream:
        """The rows of a Spark DataFrame as Rows: of any batch or Structured Streaming source, exactly once.

        The job runs on the batched runner; docs/connectors.md says how the DataFrame and the job share the cluster.

        Args:
            df_factory: called with the SparkSession in the JobManager; gives the DataFrame. A streaming one may select,
                filter and join with tables; it must not keep state of its own.
            watermark_strategy: applied to each micro-batch's parts; `assign_timestamps_and_watermarks` applies one to the
                whole stream, which keeps the clock over all batches.
            bounded: a streaming DataFrame is read up to what is there at the start. One that does not stream always ends.
        """
        from penstock.connectors.spark import SparkSource

        checked_function(df_factory, operation="from_spark", arguments=1)
        source = SparkSource(df_factory, bounded=bounded)
        return self.from_source(source, watermark_strategy, source_name, type_info)

    # --- execution --------------------------------------------------------------------------------------------

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Runs the program to its end. The environment then starts anew: its sinks are gone.

        Raises:
            InvalidJob: the program cannot be run; nothing was touched.
        """
        return (self._executor or current_executor()).execute(self._take_program(job_name))

    def execute_async(self, job_name: str = DEFAULT_JOB_NAME) -> JobClient:
        """Starts the program and gives the client of the running job."""
        return (self._executor or current_executor()).execute_async(self._take_program(job_name))

    def get_program(self, job_name: str | None = None) -> Program:
        """The program as it was written so far.

        Raises:
            InvalidJob: it cannot be run.
        """
        if not self._sinks:
            raise refusal(
                "the program has no sink, so there is nothing to run",
                "end a stream with sink_to(), add_sink() or print()",
            )
        name = job_name or self._configuration.get(options.JOB_NAME) or DEFAULT_JOB_NAME
        program = Program.of(name, self._sinks, self._configuration, _user_script())
        self._check_mode(program.transformations)
        return program

    def get_execution_plan(self) -> str:
        """The program as JSON, in the shape of Flink's execution plans."""
        return execution_plan(self.get_program())

    def close(self) -> None:
        """Nothing is held open."""

    def _take_program(self, job_name: str | None) -> Program:
        program = self.get_program(job_name)
        self._sinks = []
        return program

    def _collect(self, job_name: str | None, limit: int | None) -> Iterator[Any]:
        return (self._executor or current_executor()).collect(self._take_program(job_name), limit)

    def _add_sink(self, transformation: Transformation) -> None:
        self._sinks.append(transformation)

    def _gives_final_results(self, inputs: Sequence[Input]) -> bool:
        """Whether rolling aggregates over these inputs give one final result for each key (batch mode)."""
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
                    f"source {transformation.name!r} is unbounded, and the program runs in batch mode",
                    "bound the source, or set RuntimeExecutionMode.STREAMING",
                    operator=transformation.name,
                )
                error.location = transformation.user_location
                raise error


def _is_bounded(transformation: Transformation) -> bool:
    return transformation.source is None or transformation.source.bounded


def _user_script() -> str | None:
    """The file of the program that runs."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    return None if path is None else os.path.abspath(path)


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
