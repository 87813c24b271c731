"""Restart strategies, execution settings, the interface of executors, job ids and schemas."""

from __future__ import annotations

import threading
import warnings
from datetime import timedelta
from typing import Any

import pytest

from penstock.common import (
    ByteArraySchema,
    CompletableFuture,
    Configuration,
    Encoder,
    ExecutionConfig,
    JobExecutionResult,
    JobID,
    JobStatus,
    RestartStrategies,
    SimpleStringSchema,
)
from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.common.program.one_time_warning import NoEffectWarning
from penstock.common.restart_strategy import restart_strategy_of
from penstock.common.serialization import RowFieldExtractorSchema
from penstock.graph.executor import current_executor, executing_on

SECOND = timedelta(seconds=1)


class TestRestartStrategies:
    @pytest.mark.parametrize(
        "strategy",
        [
            RestartStrategies.no_restart(),
            RestartStrategies.fixed_delay_restart(3, 10_000),
            RestartStrategies.failure_rate_restart(3, timedelta(minutes=5), SECOND),
            RestartStrategies.exponential_delay_restart(),
            RestartStrategies.exponential_delay_restart(2 * SECOND, 60 * SECOND, 2.0, 3600 * SECOND, 0.2, 5),
        ],
    )
    def test_strategies_are_restored_from_the_configuration(self, strategy: Any) -> None:
        configuration = Configuration.from_dict(strategy.to_settings())
        assert restart_strategy_of(configuration, checkpointing=False) == strategy
        assert strategy.get_description()

    def test_the_fallback_depends_on_checkpoints(self) -> None:
        configuration = Configuration.from_dict(RestartStrategies.fall_back_restart().to_settings())
        assert restart_strategy_of(configuration, checkpointing=False) == RestartStrategies.no_restart()
        assert restart_strategy_of(configuration, checkpointing=True) == RestartStrategies.exponential_delay_restart()

    @pytest.mark.parametrize("name", ["none", "off", "disable"])
    def test_the_restart_strategy_none_has_all_names_of_flink(self, name: str) -> None:
        configuration = Configuration.from_dict({"restart-strategy.type": name})
        assert restart_strategy_of(configuration, checkpointing=True) == RestartStrategies.no_restart()

    def test_getters_return_their_settings(self) -> None:
        fixed = RestartStrategies.FixedDelayRestartStrategyConfiguration(3, SECOND)
        assert (fixed.get_restart_attempts(), fixed.get_delay_between_attempts_interval()) == (3, SECOND)
        rate = RestartStrategies.FailureRateRestartStrategyConfiguration(2, 60 * SECOND, SECOND)
        assert (rate.get_max_failure_rate(), rate.get_failure_interval()) == (2, 60 * SECOND)

    @pytest.mark.parametrize(
        "call",
        [
            lambda: RestartStrategies.fixed_delay_restart(-1, 0),
            lambda: RestartStrategies.fixed_delay_restart(1, -1),
            lambda: RestartStrategies.failure_rate_restart(0, 1, 1),
            lambda: RestartStrategies.exponential_delay_restart(backoff_multiplier=0.5),
            lambda: RestartStrategies.exponential_delay_restart(jitter_factor=1.5),
        ],
    )
    def test_invalid_settings_are_refused(self, call: Any) -> None:
        with pytest.raises(InvalidJob):
            call()


class TestExecutionConfig:
    def test_is_a_view_on_the_configuration(self) -> None:
        configuration = Configuration.from_dict({"pipeline.auto-watermark-interval": "50ms"})
        config = ExecutionConfig(configuration)
        assert config.get_auto_watermark_interval() == 50
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoEffectWarning)
            config.set_latency_tracking_interval(SECOND).disable_auto_generated_uids()
        assert configuration.to_dict()["metrics.latency.interval"] == "1s"
        assert config.get_latency_tracking_interval() == 1000
        assert not config.has_auto_generated_uids_enabled()

    def test_job_parameters_may_have_any_type(self) -> None:
        parameters = {"a": "x,y", "b:c": "{}", "d": ""}
        assert ExecutionConfig().set_global_job_parameters(parameters).get_global_job_parameters() == parameters

    def test_the_default_parallelism_changes_nothing(self) -> None:
        config = ExecutionConfig().set_parallelism(3).set_parallelism(ExecutionConfig.PARALLELISM_DEFAULT)
        assert config.get_parallelism() == 3

    def test_setters_can_be_chained_and_getters_return_the_values(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoEffectWarning)
            config = ExecutionConfig()
            for setter in [
                "enable_closure_cleaner",
                "disable_closure_cleaner",
                "enable_force_kryo",
                "disable_force_kryo",
                "enable_generic_types",
                "disable_generic_types",
                "enable_force_avro",
                "disable_force_avro",
                "enable_object_reuse",
                "enable_auto_generated_uids",
            ]:
                assert getattr(config, setter)() is config
            config.set_use_snapshot_compression(use_snapshot_compression=False)
        assert config.is_object_reuse_enabled()
        assert not config.disable_object_reuse().is_object_reuse_enabled()
        assert config.set_task_cancellation_timeout(5 * SECOND).get_task_cancellation_timeout() == 5000
        assert config.set_task_cancellation_interval(10).get_task_cancellation_interval() == 10
        assert (config.is_force_kryo_enabled(), config.is_force_avro_enabled()) == (False, False)
        assert (config.get_registered_kryo_types(), config.get_default_kryo_serializer_classes()) == ([], {})

    def test_negative_intervals_are_refused(self) -> None:
        with pytest.raises(InvalidJob, match="must not be negative"):
            ExecutionConfig().set_auto_watermark_interval(-1)


class TestExecutor:
    def test_an_executor_is_set_for_a_block(self) -> None:
        first: Any = object()
        second: Any = object()
        with executing_on(first):
            with executing_on(second):
                assert current_executor() is second
            assert current_executor() is first

    def test_belongs_to_the_context(self) -> None:
        outer: Any = object()
        seen: list[Any] = []
        with executing_on(outer):
            inner: Any = object()

            def program() -> None:
                with executing_on(inner):
                    seen.append(current_executor())

            thread = threading.Thread(target=program)
            thread.start()
            thread.join()
            assert current_executor() is outer
        assert seen == [inner]

    def test_the_default_is_loaded_at_its_first_use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from contextvars import copy_context

        monkeypatch.setattr("penstock.graph.executor.DEFAULT_EXECUTOR", ("builtins", "dict"))
        fresh = copy_context()
        assert fresh.run(lambda: current_executor() is current_executor())


class TestJob:
    def test_ids_have_32_digits(self) -> None:
        assert len(str(JobID.generate())) == 32
        assert JobID.generate() != JobID.generate()
        with pytest.raises(InvalidJob, match="'abc' is not a job id"):
            JobID("abc")

    def test_status(self) -> None:
        assert {s for s in JobStatus if s.is_globally_terminal_state()} == {
            JobStatus.FAILED,
            JobStatus.CANCELED,
            JobStatus.FINISHED,
        }
        assert JobStatus.SUSPENDED.is_terminal_state()
        assert not JobStatus.RUNNING.is_terminal_state()

    def test_result(self) -> None:
        result = JobExecutionResult(JobID.generate(), 1500, {"n": 3})
        assert (result.get_net_runtime(), result.get_accumulator_result("n")) == (1500, 3)
        assert (result.get_accumulator_result("x"), result.get_all_accumulator_results()) == (None, {"n": 3})
        assert result.is_job_execution_result()

    def test_future(self) -> None:
        future = CompletableFuture.completed("x")
        assert (future.done(), future.result(), future.exception()) == (True, "x", None)


class TestSchemas:
    def test_strings(self) -> None:
        schema = SimpleStringSchema()
        assert schema.deserialize_batch(schema.serialize_batch(["a", "é", 3])) == ["a", "é", "3"]
        with pytest.raises(RecordFormatError, match="is not UTF-8"):
            schema.deserialize(b"\xff")
        with pytest.raises(InvalidJob, match="the charset 'klingon' does not exist"):
            SimpleStringSchema("klingon")

    def test_bytes(self) -> None:
        assert ByteArraySchema().deserialize(ByteArraySchema().serialize(bytearray(b"a"))) == b"a"
        with pytest.raises(RecordFormatError, match="is not bytes"):
            ByteArraySchema().serialize("text")

    def test_row_field(self) -> None:
        schema = RowFieldExtractorSchema(1)
        assert [schema.serialize((0, field)) for field in (b"x", bytearray(b"y"), None)] == [b"x", b"y", b""]
        assert schema.serialize(None) == b""
        assert schema == RowFieldExtractorSchema(1) != RowFieldExtractorSchema(0)
        assert hash(schema) == hash(RowFieldExtractorSchema(schema.get_field_index()))
        with pytest.raises(RecordFormatError, match="no field 1"):
            schema.serialize((0,))
        with pytest.raises(RecordFormatError, match="not bytes"):
            schema.serialize((0, "text"))
        with pytest.raises(ValueError, match="Field index must be non-negative"):
            RowFieldExtractorSchema(-1)

    def test_lines(self) -> None:
        encoder = Encoder.simple_string_encoder("latin-1")
        assert encoder.encode_batch(["é", 1]) == encoder.encode("é") + encoder.encode(1) == b"\xe9\n1\n"
