"""Configuration: typed options, texts and files; unknown Penstock keys are refused."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Configuration
from penstock.common.config import options
from penstock.common.config.option import config_text, parse_list, parse_map
from penstock.common.config.option_table import FORMER_KEYS, OPTIONS, as_markdown, without_effect
from penstock.common.configuration import load_configuration, read_configuration_file, set_command_line
from penstock.common.errors import InvalidJob
from penstock.metrics.scope import ScopeKind
from penstock.state.rocksdb import options as rocksdb_options


class TestOptions:
    def test_every_default_is_a_value_of_its_option(self) -> None:
        for option in OPTIONS.values():
            if option.default is not None:
                assert option.parse(config_text(option.default)) == option.default, option.key

    def test_every_option_is_documented_once(self) -> None:
        assert len({option.doc for option in OPTIONS.values()}) > 0.9 * len(OPTIONS)
        assert all(option.doc.endswith((".", ";")) for option in OPTIONS.values())
        assert re.findall(r"^\| `([^`]+)` \|", as_markdown(), re.MULTILINE) == list(OPTIONS)

    def test_all_keys_of_the_specification_exist(self) -> None:
        for key in [
            "parallelism.default",
            "execution.checkpointing.interval",
            "state.backend.type",
            "execution.checkpointing.dir",
            "execution.checkpointing.savepoint-dir",
            "execution.checkpointing.num-retained",
            "restart-strategy.type",
            "penstock.runner",
            "penstock.epoch.target",
        ]:
            assert key in OPTIONS

    @pytest.mark.parametrize(
        ("key", "text", "value"),
        [
            ("parallelism.default", "4", 4),
            ("execution.checkpointing.interval", "10s", timedelta(seconds=10)),
            ("execution.checkpointing.interval", "PT1M", timedelta(minutes=1)),
            ("execution.checkpointing.mode", "exactly_once", "EXACTLY_ONCE"),
            ("state.backend.type", "RocksDB", "rocksdb"),
            ("pipeline.operator-chaining.enabled", "FALSE", False),
            ("restart-strategy.exponential-delay.jitter-factor", "0.5", 0.5),
            ("python.files", "a.py;b.py", ["a.py", "b.py"]),
            ("pipeline.global-job-parameters", "a:1,b:2", {"a": "1", "b": "2"}),
        ],
    )
    def test_texts_are_parsed(self, key: str, text: str, value: Any) -> None:
        assert Configuration().set_string(key, text).get(OPTIONS[key]) == value

    @pytest.mark.parametrize(
        ("key", "text", "reason"),
        [
            ("parallelism.default", "four", "not an integer"),
            ("parallelism.default", "0", "it must be at least 1"),
            ("execution.checkpointing.interval", "10 parsecs", "is not a duration"),
            ("execution.checkpointing.interval", "-1s", "it must not be negative"),
            ("execution.checkpointing.mode", "MAYBE", "choose from EXACTLY_ONCE, AT_LEAST_ONCE"),
            ("pipeline.operator-chaining.enabled", "yes", "write true or false"),
            ("pipeline.global-job-parameters", "a", "has no colon"),
        ],
    )
    def test_wrong_texts_are_refused_with_key_value_and_reason(self, key: str, text: str, reason: str) -> None:
        with pytest.raises(InvalidJob, match=reason) as caught:
            Configuration().set_string(key, text)
        assert key in caught.value.message
        assert repr(text) in caught.value.message

    def test_former_keys_are_accepted(self) -> None:
        configuration = Configuration.from_dict({"state.backend": "rocksdb", "state.checkpoints.num-retained": 3})
        assert configuration.get(options.STATE_BACKEND) == "rocksdb"
        assert configuration.get(options.RETAINED_CHECKPOINTS) == 3
        assert configuration.set_string("state.backend.type", "hashmap").get(options.STATE_BACKEND) == "hashmap"
        with pytest.raises(InvalidJob, match=r"state\.backend\.type is set to 'heap'"):
            configuration.set_string("state.backend", "heap")

    def test_unknown_penstock_keys_are_refused_with_the_nearest_key(self) -> None:
        with pytest.raises(InvalidJob, match=r"the option 'penstock\.epoch\.targt' does not exist") as caught:
            Configuration().set_string("penstock.epoch.targt", "1s")
        assert "'penstock.epoch.target'" in caught.value.remedy
        assert caught.value.location.startswith(__file__)

    @pytest.mark.parametrize(
        ("key", "meant"),
        [
            ("execution.checkpointing.intervall", "execution.checkpointing.interval"),
            ("paralelism.default", "parallelism.default"),
            ("state.checkpoint.dir", "execution.checkpointing.dir"),
            ("metrics.reporter", "metrics.reporters"),
            ("rest.prot", "rest.port"),
        ],
    )
    def test_a_misspelt_key_is_refused_with_the_key_that_was_meant(self, key: str, meant: str) -> None:
        with pytest.raises(InvalidJob, match=f"the option '{key}' does not exist") as caught:
            Configuration({key: "1"})
        assert repr(meant) in caught.value.remedy

    @pytest.mark.parametrize(
        "key",
        [*OPTIONS, *FORMER_KEYS, *(f"metrics.scope.{kind.value}" for kind in ScopeKind)]
        + [f"{rocksdb_options.PREFIX}{name}" for name in rocksdb_options.DEFAULTS]
        + [
            "spark.executor.memory",
            "metrics.reporter.prom.port",
            "fs.s3a.endpoint",
            "hadoop.x",
            "my.threshold",
            "redis.port",
        ],
    )
    def test_a_key_with_an_effect_or_of_a_program_causes_no_warning(self, key: str) -> None:
        assert without_effect(key) == ""

    @pytest.mark.parametrize(
        ("key", "meant"),
        [
            ("checkpoint.interval", "execution.checkpointing.interval"),
            ("checkpoint.dir", "execution.checkpointing.dir"),
            ("execution.every", ""),
            ("parallelism", ""),
        ],
    )
    def test_a_key_without_an_effect_is_named(self, key: str, meant: str) -> None:
        text = without_effect(key)
        assert text.startswith(f"the configuration key {key!r} has no effect")
        assert text.endswith(f"Did you mean {meant!r}?" if meant else "no such option exists")

    def test_a_misspelt_key_of_the_command_line_names_it_as_the_place(self) -> None:
        with pytest.raises(InvalidJob) as caught:
            set_command_line({"rest.prot": "1"})
        assert caught.value.location == "the command line"

    @pytest.mark.parametrize(
        "key",
        [
            "execution.checkpointing.interval-during-backlog",
            "execution.checkpointing.storage",
            "jobmanager.memory.off-heap.size",
            "state.backend.rocksdb.log.dir",
            "taskmanager.memory.network.fraction",
            "metrics.reporter.otel.class",
            "app.interval",
        ],
    )
    def test_keys_of_flink_and_of_the_program_are_kept(self, key: str) -> None:
        assert Configuration({key: "1"}).to_dict() == {key: "1"}

    def test_other_unknown_keys_are_kept(self) -> None:
        configuration = Configuration().set_string("spark.executor.memory", "1g")
        assert configuration.get_string("spark.executor.memory", None) == "1g"


class TestConfiguration:
    def test_typed_getters_and_setters(self) -> None:
        configuration = (
            Configuration()
            .set_string("s", "text")
            .set_integer("i", 3)
            .set_boolean("b", True)
            .set_float("f", 1.5)
            .set_bytearray("y", bytearray(b"\x00\xff"))
        )
        assert configuration.get_string("s", "") == "text"
        assert configuration.get_integer("i", 0) == 3
        assert configuration.get_boolean("b", False) is True
        assert configuration.get_float("f", 0.0) == 1.5
        assert configuration.get_bytearray("y", bytearray()) == bytearray(b"\x00\xff")
        assert configuration.get_integer("missing", 7) == 7
        with pytest.raises(InvalidJob, match="s is set to 'text', which is not an integer"):
            configuration.get_integer("s", 0)

    def test_a_configuration_is_a_collection(self) -> None:
        configuration = Configuration.from_dict({"a": 1, "b": "x"})
        assert (configuration.key_set(), configuration.contains_key("a")) == ({"a", "b"}, True)
        assert (configuration.remove_config("a"), configuration.remove_config("a")) == (True, False)
        target: dict[str, Any] = {}
        configuration.add_all(Configuration.from_dict({"c": "y"}), prefix="p.").add_all_to_dict(target)
        assert target == configuration.to_dict() == {"b": "x", "p.c": "y"}
        assert configuration == Configuration(target)
        assert hash(configuration) == hash(Configuration(target))

    def test_none_unsets_an_option(self) -> None:
        configuration = Configuration().set(options.JOB_NAME, "x").set(options.JOB_NAME, None)
        assert not configuration.contains_key("pipeline.name")

    def test_a_key_must_be_a_text(self) -> None:
        with pytest.raises(InvalidJob, match="a configuration key is a text"):
            Configuration.from_dict({3: "x"})  # type: ignore[dict-item]


class TestFiles:
    def test_flat_and_nested_keys_are_read(self, tmp_path: Path) -> None:
        (tmp_path / "penstock.yaml").write_text(
            "parallelism.default: 4\n"
            "execution:\n  checkpointing:\n    interval: 10s\n    dir: s3://b/c\n"
            "pipeline:\n  object-reuse: true\n  global-job-parameters: {threshold: 1.5}\n"
            "python.files: [a.py, b.py]\nempty:\n"
        )
        configuration = load_configuration(tmp_path)
        assert configuration.get(options.PARALLELISM) == 4
        assert configuration.get(options.CHECKPOINT_INTERVAL) == timedelta(seconds=10)
        assert configuration.get(options.OBJECT_REUSE) is True
        assert configuration.get(options.GLOBAL_JOB_PARAMETERS) == {"threshold": "1.5"}
        assert configuration.get(options.PYTHON_FILES) == ["a.py", "b.py"]
        assert not configuration.contains_key("empty")

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("- a\n- b\n", "holds a list"),
            ("a: [", "is not YAML"),
            ("penstock:\n  epoch:\n    tagret: 1s\n", "the option 'penstock.epoch.tagret' does not exist"),
            ("parallelism.default: many\n", "parallelism.default is set to 'many'"),
        ],
    )
    def test_a_wrong_file_is_refused_by_name(self, tmp_path: Path, content: str, message: str) -> None:
        path = tmp_path / "penstock.yaml"
        path.write_text(content)
        with pytest.raises(InvalidJob) as caught:
            read_configuration_file(path)
        assert str(path) in caught.value.message
        assert message in caught.value.message

    def test_a_folder_without_the_file_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PENSTOCK_CONF_DIR", str(tmp_path))
        with pytest.raises(InvalidJob, match=r"the configuration file .*penstock\.yaml does not exist"):
            load_configuration()

    def test_the_configuration_is_empty_without_a_folder(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("PENSTOCK_CONF_DIR", raising=False)
        assert load_configuration().to_dict() == {}


class TestTexts:
    @given(st.dictionaries(st.text(min_size=1), st.text()))
    def test_maps_are_restored_from_their_text(self, pairs: dict[str, str]) -> None:
        plain = {key.strip(): value.strip() for key, value in pairs.items() if key.strip()}
        if all(key[0] not in '{"' and key[-1] not in "}" and (value[-1:] != "}") for key, value in plain.items()):
            assert parse_map(config_text(plain)) == plain

    @given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=9999)))
    def test_durations_are_restored_from_their_text(self, length: timedelta) -> None:
        from penstock.common.time import parse_duration

        assert parse_duration(config_text(length)) == length

    def test_lists_are_parsed(self) -> None:
        assert parse_list(" a ;; b ") == ["a", "b"]


def test_the_documentation_contains_the_table() -> None:
    page = Path(__file__).parents[3] / "docs" / "configuration.md"
    assert as_markdown() in page.read_text(encoding="utf-8"), "docs/configuration.md: paste the result of as_markdown()"


def test_every_option_is_read_or_states_why_it_exists() -> None:
    """An option that no code reads, and that does not say so, would be silently ignored."""
    package = Path(__file__).parents[3] / "runtime" / "penstock"
    views = {"execution_config.py", "checkpoint_config.py", "state_backend.py", "program.py", "options.py"}
    code = "\n".join(f.read_text(encoding="utf-8") for f in package.rglob("*.py") if f.name not in views)
    names_read, texts = set(re.findall(r"\w+", code)), set(re.findall(r'"(?=([^"\n]*)")', code))
    names = {id(value): name for name, value in vars(options).items()}
    unread = [
        option.key
        for option in OPTIONS.values()
        if names[id(option)] not in names_read
        and option.key not in texts
        and not option.key.startswith("state.backend.rocksdb.")  # these are read by their prefix
        and not re.search(
            r"No effect; accepted for|The operator sets it|Only for the Kubernetes operator|Reserved name", option.doc
        )
    ]
    assert unread == []
