"""PyFlink's names for Elasticsearch: they import, and say what to use instead when they are used."""

from penstock.datastream.not_built import not_built

_INSTEAD = (
    "give a SinkFunction that sends bulks with ids of its own, which replace themselves, or write the "
    "stream with to_spark and Spark's Elasticsearch connector"
)

Elasticsearch6SinkBuilder = not_built("Elasticsearch6SinkBuilder", __name__, _INSTEAD)
Elasticsearch7SinkBuilder = not_built("Elasticsearch7SinkBuilder", __name__, _INSTEAD)
ElasticsearchEmitter = not_built("ElasticsearchEmitter", __name__, _INSTEAD)
ElasticsearchSink = not_built("ElasticsearchSink", __name__, _INSTEAD)
ElasticsearchSinkBuilderBase = not_built("ElasticsearchSinkBuilderBase", __name__, _INSTEAD)
FlushBackoffType = not_built("FlushBackoffType", __name__, _INSTEAD)

__all__ = [
    "Elasticsearch6SinkBuilder",
    "Elasticsearch7SinkBuilder",
    "ElasticsearchEmitter",
    "ElasticsearchSink",
    "ElasticsearchSinkBuilderBase",
    "FlushBackoffType",
]
