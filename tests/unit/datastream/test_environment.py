"""The environment: settings and their precedence, sources, sinks, and the program for the executor."""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Configuration, RestartStrategies, Row, Types, WatermarkStrategy
from penstock.common.configuration import reset_command_line, set_command_line
from penstock.common.errors import InvalidJob
from penstock.common.program.one_time_warning import NoEffectWarning
from penstock.connectors.simple.collection import CollectionSource
from penstock.connectors.simple.print import PrintSink
from penstock.datastream import (
    CheckpointingMode,
    EmbeddedRocksDBStateBackend,
    ExternalizedCheckpointRetention,
    HashMapStateBackend,
    PredefinedOptions,
    RuntimeExecutionMode,
    SinkFunction,
    SourceFunction,
    StreamExecutionEnvironment,
)
from penstock.graph import operations
from penstock.graph.job_graph_builder import JobGraphBuilder
from penstock.jobmanager.job.settings import JobSettings
from tests.unit.datastream.conftest import RecordingExecutor


class TestPrecedence:
    @pytest.fixture
    def conf_dir(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("PENSTOCK_CONF_DIR", str(tmp_path))
        return tmp_path

    def test_default_then_file_then_command_line_then_program(self, conf_dir: Path) -> None:
        def parallelism(configuration: Configuration | None = None) -> int:
            return StreamExecutionEnvironment.get_execution_environment(configuration).get_parallelism()

        (conf_dir / "penstock.yaml").write_text("")
        assert parallelism() == 1
        (conf_dir / "penstock.yaml").write_text("parallelism:\n  default: 2\n")
        assert parallelism() == 2
        token = set_command_line({"parallelism.default": 3})
        try:
            assert parallelism() == 3
            assert parallelism(Configuration().set_integer("parallelism.default", 4)) == 4
            env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(5)
            assert env.get_parallelism() == 5
        finally:
            reset_command_line(token)

    def test_environments_do_not_share_settings(self, env: StreamExecutionEnvironment) -> None:
        env.set_parallelism(7)
        assert StreamExecutionEnvironment.get_execution_environment().get_parallelism() == 1

    def test_a_wrong_file_is_refused_by_name(self, conf_dir: Path) -> None:
        (conf_dir / "penstock.yaml").write_text("penstock.epoch.tagret: 1s\n")
        with pytest.raises(
            InvalidJob, match=r"penstock\.yaml: the option 'penstock\.epoch\.tagret' does not exist"
        ) as caught:
            StreamExecutionEnvironment.get_execution_environment()
        assert "'penstock.epoch.target'" in caught.value.remedy


class TestSettings:
    def test_settings_are_part_of_the_program(
        self, env: StreamExecutionEnvironment, executor: RecordingExecutor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("__main__.__file__", "job.py", raising=False)
        env.set_parallelism(4).set_max_parallelism(256).enable_checkpointing(10_000, CheckpointingMode.AT_LEAST_ONCE)
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, timedelta(seconds=5)))
        env.get_config().set_global_job_parameters({"keyWord": "flink"}).set_auto_watermark_interval(50)
        env.set_default_savepoint_directory("s3://b/savepoints")
        checkpoints = env.get_checkpoint_config()
        checkpoints.set_checkpoint_timeout(timedelta(minutes=1)).set_min_pause_between_checkpoints(500)
        checkpoints.set_tolerable_checkpoint_failure_number(2).set_num_retained(3)
        checkpoints.set_externalized_checkpoint_retention(ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION)
        checkpoints.set_checkpoint_storage_dir("s3://b/checkpoints")
        env.from_collection([1]).print()
        env.execute("settings")
        (program,) = executor.programs
        assert (program.name, program.parallelism, program.max_parallelism) == ("settings", 4, 256)
        assert program.configuration["execution.checkpointing.mode"] == "AT_LEAST_ONCE"
        s = JobSettings.from_configuration(program.configuration)
        assert (s.checkpoint_interval_ms, s.checkpoint_timeout_ms, s.checkpoint_min_pause_ms) == (10_000, 60_000, 500)
        assert (s.tolerable_failures, s.retained, s.retention) == (2, 3, "RETAIN_ON_CANCELLATION")
        assert (s.checkpoint_dir, s.savepoint_dir) == ("s3://b/checkpoints", "s3://b/savepoints")
        assert s.restart_strategy().describe() == "fixed-delay: 3 attempts, 5000 ms apart (0 used)"
        assert program.global_job_parameters == {"keyWord": "flink"}
        assert program.configuration["pipeline.auto-watermark-interval"] == "50ms"
        assert program.user_script == os.path.abspath("job.py")

    def test_settings_can_be_read(self, env: StreamExecutionEnvironment) -> None:
        assert (env.get_max_parallelism(), env.get_checkpoint_interval()) == (-1, -1)
        assert env.enable_checkpointing(timedelta(seconds=1)).get_checkpoint_interval() == 1000
        assert env.get_checkpointing_mode() is CheckpointingMode.EXACTLY_ONCE
        assert env.is_chaining_enabled()
        assert not env.disable_operator_chaining().is_chaining_enabled()
        assert "Exponential" in type(env.get_restart_strategy()).__name__
        assert env.get_default_savepoint_directory() is None
        assert env.get_buffer_timeout() == 25
        assert env.set_buffer_timeout(100).get_buffer_timeout() == 100
        assert env.set_buffer_timeout(-1).get_buffer_timeout() == -1
        assert env.set_buffer_timeout(0).get_buffer_timeout() == 0

    def test_state_backends(self, env: StreamExecutionEnvironment) -> None:
        assert isinstance(env.get_state_backend(), HashMapStateBackend)
        backend = EmbeddedRocksDBStateBackend(enable_incremental_checkpointing=False)
        backend.set_predefined_options(PredefinedOptions.FLASH_SSD_OPTIMIZED)
        backend.set_db_storage_paths("/ssd")
        env.set_state_backend(backend).from_collection([1]).print()
        program = env.get_program()
        assert program.configuration["state.backend.type"] == "rocksdb"
        assert program.configuration["execution.checkpointing.incremental"] == "false"
        assert program.configuration["state.backend.rocksdb.localdir"] == "/ssd"

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda env: env.set_parallelism(0), "parallelism must be from 1"),
            (lambda env: env.set_max_parallelism(2**16), "max parallelism must be from 1"),
            (lambda env: env.enable_checkpointing(0), "at least 1 ms"),
            (lambda env: env.enable_checkpointing("10s"), "must be a timedelta"),
            (lambda env: env.set_runtime_mode("BATCH"), "takes a RuntimeExecutionMode"),
            (lambda env: env.set_buffer_timeout(-2), "buffer timeout must be"),
            (lambda env: env.add_python_file("/no/such/file.py"), "/no/such/file.py does not exist"),
            (lambda env: env.add_python_archive("venv.zip"), "venv.zip does not exist"),
            (
                lambda env: env.configure(Configuration().set_string("penstock.runer", "x")),
                "the option 'penstock.runer' does not exist",
            ),
            (
                lambda env: env.configure(Configuration().set_string("penstock.runner", "x")),
                "penstock.runner is set to 'x'",
            ),
        ],
    )
    def test_invalid_sources_are_refused(self, env: StreamExecutionEnvironment, call: Any, message: str) -> None:
        with pytest.raises(InvalidJob, match=message):
            call(env)

    def test_settings_of_the_jvm_cause_one_warning(self, env: StreamExecutionEnvironment) -> None:
        from penstock.common.program import one_time_warning

        one_time_warning._given.clear()
        with pytest.warns(NoEffectWarning, match="add_jars has no effect: connectors are part of the image") as warned:
            _add_jars(env)
        assert len(warned) == 1
        assert warned[0].filename == __file__
        for call in (
            env.get_config().enable_force_kryo,
            lambda: env.set_python_executable("python3"),
            lambda: env.get_checkpoint_config().set_max_concurrent_checkpoints(2),
            lambda: EmbeddedRocksDBStateBackend(enable_incremental_checkpointing=False),
        ):
            with pytest.warns(NoEffectWarning):
                call()

    def test_python_files_are_added_to_the_path(
        self, env: StreamExecutionEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "path", list(sys.path))
        module = tmp_path / "penstock_test_module_of_a_job.py"
        module.write_text("ANSWER = 42")
        env.add_python_file(str(module))
        import penstock_test_module_of_a_job  # type: ignore[import-not-found]

        assert penstock_test_module_of_a_job.ANSWER == 42
        env.from_collection([1]).print()
        assert env.get_program().configuration["python.files"] == str(tmp_path)


class TestSources:
    def test_from_source_records_source_and_strategy(self, env: StreamExecutionEnvironment) -> None:
        source, strategy = CollectionSource([1, 2]), WatermarkStrategy.for_monotonous_timestamps()
        stream = env.from_source(source, strategy, "numbers").uid("numbers")
        t = stream._transformation
        assert t is not None
        assert (t.operation, t.name, t.uid) == (operations.Source(source, strategy), "numbers", "numbers")
        assert t.user_location.startswith(__file__)
        assert stream.get_type() == Types.LONG()

    def test_from_collection_infers_the_type(self, env: StreamExecutionEnvironment) -> None:
        assert env.from_collection(["a", "b"]).get_type() == Types.STRING()
        assert env.from_collection([1, "b"]).get_type() is None
        assert env.from_collection(Row(a=n) for n in (1, 2)).get_type() == Types.ROW_NAMED(["a"], [Types.LONG()])

    def test_from_collection_converts_values_to_their_type(self, env: StreamExecutionEnvironment) -> None:
        row = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.STRING()])
        t = env.from_collection([(1, "x"), {"a": 2, "b": "y"}], row)._transformation
        assert t is not None
        source: Any = t.source
        assert source.values == [Row(a=1, b="x"), Row(a=2, b="y")]
        assert t.non_parallel

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda env: env.from_collection([]), "empty collection and no type"),
            (lambda env: env.from_collection("text"), "takes a collection of values"),
            (lambda env: env.from_collection(3), "takes a collection of values"),
            (lambda env: env.from_collection([1, "b"], Types.LONG()), "value 1 of the collection is not a Types.LONG"),
            (lambda env: env.from_collection([(1,)], Types.ROW([Types.LONG()] * 2)), "value 0 of the collection"),
            (lambda env: env.from_source(3, None, "x"), "from_source takes a Source"),
            (lambda env: env.from_source(CollectionSource([1]), 3, "x"), "a WatermarkStrategy is needed"),
            (lambda env: env.add_source(3), "add_source takes a SourceFunction"),
            (lambda env: env.create_input("file.avro"), "create_input takes an input format"),
        ],
    )
    def test_invalid_sources_are_refused(self, env: StreamExecutionEnvironment, call: Any, message: str) -> None:
        with pytest.raises(InvalidJob, match=message):
            call(env)

    def test_an_empty_collection_with_a_type_is_a_stream(self, env: StreamExecutionEnvironment) -> None:
        assert env.from_collection([], Types.STRING()).get_type() == Types.STRING()

    def test_source_functions(self, env: StreamExecutionEnvironment) -> None:
        class Numbers(SourceFunction):
            def run(self, ctx: SourceFunction.SourceContext) -> None:
                ctx.collect(1)

            def cancel(self) -> None: ...

        stream = env.add_source(Numbers(), "numbers", int)
        assert (stream.get_name(), stream.get_type()) == ("numbers", Types.LONG())
        assert stream._transformation is not None
        assert stream._transformation.non_parallel


class TestSinks:
    def test_a_program_consists_of_its_sinks(self, env: StreamExecutionEnvironment) -> None:
        class Write(SinkFunction):
            def invoke(self, value: Any, context: SinkFunction.Context) -> None: ...

        stream = env.from_collection([1]).map(str)
        stream.print("numbers").name("shown").uid("print").set_parallelism(2)
        stream.add_sink(Write())
        stream.add_sink(lambda value: None).disable_chaining()
        stream.sink_to(PrintSink("x")).set_description("again")
        stream.map(str)
        program = env.get_program()
        assert [t.name for t in program.transformations] == [
            "Collection Source",
            "Map",
            "shown",
            "Sink: Unnamed",
            "Sink: Unnamed",
            "Sink: Print",
        ]
        first = program.sinks[0]
        assert isinstance(first.sink, PrintSink)
        assert (first.sink.sink_identifier, first.uid, first.parallelism) == ("numbers", "print", 2)
        assert first.user_location.startswith(__file__)

    def test_a_program_without_a_sink_is_refused(
        self, env: StreamExecutionEnvironment, executor: RecordingExecutor
    ) -> None:
        env.from_collection([1]).map(str)
        for run in (env.execute, env.execute_async, env.get_execution_plan):
            with pytest.raises(InvalidJob, match="no sink"):
                run()
        assert executor.programs == []

    def test_a_wrong_sink_function_is_refused(self, env: StreamExecutionEnvironment) -> None:
        with pytest.raises(InvalidJob, match="add_sink calls <lambda> with 1 argument"):
            env.from_collection([1]).add_sink(lambda: 3)


class TestExecution:
    def test_a_program_is_executed_by_the_executor_of_the_context(
        self, env: StreamExecutionEnvironment, executor: RecordingExecutor
    ) -> None:
        env.from_collection([1]).print()
        result: Any = env.execute()
        assert (result, executor.programs[0].name) == ("result", "Flink Streaming Job")
        with pytest.raises(InvalidJob, match="no sink"):
            env.execute()
        env.from_collection([2]).print()
        client: Any = env.execute_async("again")
        assert (client, executor.programs[1].name) == ("client", "again")
        assert len(executor.programs[1].transformations) == 2

    def test_the_configuration_may_name_the_job(
        self, env: StreamExecutionEnvironment, executor: RecordingExecutor
    ) -> None:
        env.configure(Configuration().set_string("pipeline.name", "nightly"))
        env.from_collection([1]).print()
        env.execute()
        assert executor.programs[0].name == "nightly"

    def test_collect_returns_values_and_closes(
        self, env: StreamExecutionEnvironment, executor: RecordingExecutor
    ) -> None:
        executor.collected = [1, 2, 3]
        stream = env.from_collection([1, 2, 3])
        with stream.execute_and_collect("collect") as values:
            assert next(values) == 1
            assert not executor.closed
        assert executor.closed
        assert executor.programs[0].sinks[0].sink is not None
        assert stream.execute_and_collect(limit=2) == [1, 2]
        assert executor.limits == [None, 2]

    def test_the_program_becomes_a_job_graph(self, env: StreamExecutionEnvironment) -> None:
        env.set_parallelism(2)
        source = env.from_collection([("a", 1)])
        source.map(lambda v: v).key_by(0).sum(1).filter(lambda v: v[1] > 1).print()
        program = env.get_program()
        graph = JobGraphBuilder(program.sinks, name=program.name, parallelism=program.parallelism).build()
        assert [stage.name for stage in graph.stages] == [
            "Collection Source",
            "Map",
            "Keyed Sum -> Filter -> Print to Std. Out",
        ]

    def test_the_plan_contains_nodes_and_exchanges(self, env: StreamExecutionEnvironment) -> None:
        env.set_parallelism(2)
        left, right = env.from_collection([("a", 1)]), env.from_collection([("a", 2)])
        left.key_by(0).connect(right.key_by(0)).map((str, str)).print()
        nodes = json.loads(env.get_execution_plan())["nodes"]
        assert [(n["type"], n["pact"], n["parallelism"]) for n in nodes] == [
            ("Collection Source", "Data Source", 1),
            ("Collection Source", "Data Source", 1),
            ("Co-Map", "Operator", 2),
            ("Print to Std. Out", "Data Sink", 2),
        ]
        assert [(p["ship_strategy"], p["side"]) for p in nodes[2]["predecessors"]] == [
            ("HASH", "first"),
            ("HASH", "second"),
        ]

    def test_the_default_executor_is_the_one_of_python_job(self) -> None:
        from penstock.graph.executor import DEFAULT_EXECUTOR
        from penstock.jobmanager.process.session.default_executor import DefaultExecutor

        assert (DefaultExecutor.__module__, DefaultExecutor.__name__) == DEFAULT_EXECUTOR


def _add_jars(env: StreamExecutionEnvironment) -> None:
    env.add_jars("file:///a.jar", "file:///b.jar")
    env.add_jars("file:///c.jar")


def test_modes(env: StreamExecutionEnvironment) -> None:
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.from_collection([1]).print()
    assert env.get_program().configuration["execution.runtime-mode"] == "BATCH"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("one", "http://one:8081"),
        ("::1", "http://[::1]:8081"),
        ("https://flink.example.com", "https://flink.example.com"),
        ("one, two", "http://one:8081,http://two:8081"),
        ("http://one:1,https://two:2", "http://one:1,https://two:2"),
    ],
)
def test_a_remote_environment_takes_one_master_or_all_masters_of_a_cluster(
    host: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PENSTOCK_CA_FILE", "PENSTOCK_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    urls: list[str] = []
    monkeypatch.setattr(
        "penstock.datastream.stream_execution_environment.remote_executor", lambda url, *more: urls.append(url)
    )
    StreamExecutionEnvironment.create_remote_environment(host)
    assert urls == [url]
