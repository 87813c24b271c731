"""Connectors of PyFlink that Penstock does not have can be imported, and name the alternative when they are used."""

from __future__ import annotations

from importlib import import_module

import pytest

from penstock.common.errors import InvalidJob

MODULES = {
    "connectors.dynamic_kafka": "DynamicKafkaSource",
    "connectors.kafka": "FlinkKafkaConsumer",
    "connectors.elasticsearch": "Elasticsearch6SinkBuilder",
    "connectors.kinesis": "KinesisFirehoseSink",
    "connectors.pulsar": "PulsarSource",
}


@pytest.mark.parametrize("module", MODULES)
def test_the_alternative_is_named_at_the_first_use(module: str) -> None:
    found = getattr(import_module(f"penstock.datastream.{module}"), MODULES[module])
    for use in (found, lambda: found.builder().build()):
        with pytest.raises(InvalidJob, match=f"Penstock does not have {MODULES[module]}.* of PyFlink") as error:
            use()
        assert len(error.value.remedy) > 30
    assert not hasattr(found, "builder")


def test_removed_names_of_pyflink_can_be_imported_and_name_the_alternative() -> None:
    from penstock.datastream.connectors.kafka import FlinkKafkaConsumer, FlinkKafkaProducer, Semantic
    from penstock.datastream.connectors.kinesis import WatermarkTracker

    with pytest.raises(InvalidJob) as error:
        FlinkKafkaConsumer("topic", None, {})
    assert "KafkaSource.builder()" in error.value.remedy
    with pytest.raises(InvalidJob) as error:
        FlinkKafkaProducer("topic", None, {}, semantic=None)
    assert "KafkaSink.builder()" in error.value.remedy
    with pytest.raises(InvalidJob) as error:
        _ = Semantic.EXACTLY_ONCE
    assert "DeliveryGuarantee" in error.value.remedy
    with pytest.raises(InvalidJob):
        WatermarkTracker()
