"""A record contains its place in the job in both formats, and no secret."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from penstock.common.configuration import Configuration
from penstock.common.errors import InvalidJob
from penstock.common.logs.log_format import Place, record_format
from penstock.common.logs.log_settings import LogSettings
from penstock.common.logs.redaction import Redaction

PLACE = Place("bc0b", "orders", 2, 3, "Totals", "totals")


def record(message: str, *arguments: object, with_error: bool = False) -> logging.LogRecord:
    error = None
    if with_error:
        try:
            raise ValueError("hunter22 is wrong")
        except ValueError:
            error = sys.exc_info()
    made = logging.LogRecord("my.module", logging.WARNING, __file__, 1, message, arguments, error)
    made.created, made.msecs = 1_769_860_800.123, 123.0
    return made


def test_text_is_one_line_with_the_place() -> None:
    text = record_format("text", Redaction(), lambda: PLACE).format(record("%d late", 7))
    assert text == "2026-01-31 12:00:00,123 WARNING my.module [orders: Totals #3, attempt 2]: 7 late"


def test_text_without_a_place_has_no_brackets() -> None:
    text = record_format("text", Redaction()).format(record("up"))
    assert text == "2026-01-31 12:00:00,123 WARNING my.module: up"


def test_json_is_one_line_for_every_message() -> None:
    text = record_format("json", Redaction(), lambda: PLACE).format(record("two\nlines", with_error=True))
    assert "\n" not in text
    found = json.loads(text)
    assert found["message"] == "two\nlines"
    assert "ValueError" in found["exception"]
    assert (found["job"], found["operator"], found["uid"], found["subtask"], found["attempt"]) == (
        "bc0b",
        "Totals",
        "totals",
        3,
        2,
    )


@pytest.mark.parametrize("form", ["text", "json"])
def test_message_arguments_and_traceback_contain_no_secret(form: str) -> None:
    written = record_format(form, Redaction(["hunter22"])).format(record("key %s", "hunter22", with_error=True))
    assert "hunter22" not in written
    assert written.count("******") >= 2


def test_secrets_of_the_environment_and_the_configuration_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "from-the-environment")
    redaction = Redaction.of({"s3.secret-key": "from-the-configuration", "rest.port": "8081"}, "given")
    assert redaction.clean("from-the-environment from-the-configuration given 8081") == "****** ****** ****** 8081"


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(InvalidJob, match="'LOUD'"):
        LogSettings.from_configuration(Configuration({"penstock.log.levels": "my.module:LOUD"}))


def test_levels_are_set_per_logger() -> None:
    settings = LogSettings.from_configuration(
        Configuration({"penstock.log.level": "WARNING", "penstock.log.levels": "a.b:debug"})
    )
    before = logging.getLogger().level
    try:
        settings.apply_levels()
        assert logging.getLogger("a.b.c").isEnabledFor(logging.DEBUG)
        assert not logging.getLogger("a").isEnabledFor(logging.INFO)
    finally:
        logging.getLogger().setLevel(before)
        logging.getLogger("a.b").setLevel(logging.NOTSET)
