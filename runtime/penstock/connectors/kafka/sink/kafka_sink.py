"""`KafkaSink`: write records into Kafka topics, with PyFlink's names.

KafkaSink.builder().set_bootstrap_servers("kafka:9092").set_transactional_id_prefix("alerts")
    .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
    .set_record_serializer(KafkaRecordSerializationSchema.builder().set_topic("alerts")
        .set_value_serialization_schema(JsonLinesEncoder()).build()).build()
"""

from __future__ import annotations

import re
from typing import Any

from penstock.common.errors import InvalidJob, SinkError
from penstock.connectors.core.delivery_guarantee import DeliveryGuarantee
from penstock.connectors.core.sink import Committer, Sink, SinkWriter, WriterContext
from penstock.connectors.kafka.client import (
    CONNECT_S,
    Complaints,
    Properties,
    administrating,
    explained,
    librdkafka,
    package,
)
from penstock.connectors.kafka.client_builder import ClientBuilder
from penstock.connectors.kafka.offsets import create_client
from penstock.connectors.kafka.sink.committer import KafkaCommitter
from penstock.connectors.kafka.sink.coordinator_client import CoordinatorClient
from penstock.connectors.kafka.sink.serializer import KafkaRecordSerializationSchema
from penstock.connectors.kafka.sink.transaction import Owner
from penstock.connectors.kafka.sink.writer import PlainWriter, TransactionalWriter

_TIMEOUT = "transaction.timeout.ms"
_DEFAULT_TIMEOUT_MS = 10 * 60 * 1000
_BROKERS_MAXIMUM = "transaction.max.timeout.ms"


class KafkaSink(Sink):
    """A sink that writes records into Kafka topics. `builder()` returns its builder."""

    def __init__(
        self,
        schema: KafkaRecordSerializationSchema,
        properties: Properties,
        guarantee: DeliveryGuarantee,
        prefix: str,
        *,
        takes_over: bool,
        accepts_unknown: bool,
    ) -> None:
        self.properties = dict(properties)
        self.guarantee = guarantee
        self.prefix = prefix
        self._schema = schema
        self._takes_over = takes_over
        self._accepts_unknown = accepts_unknown

    @staticmethod
    def builder() -> KafkaSinkBuilder:
        return KafkaSinkBuilder()

    def get_transformer(self) -> None:
        """Return None, because the sink does not transform the stream before it writes (PyFlink's name)."""

    @property
    def _is_exact(self) -> bool:
        return self.guarantee is DeliveryGuarantee.EXACTLY_ONCE

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        properties = {"client.id": f"penstock-{context.uid}-{context.subtask}", **self.properties}
        if self._is_exact:
            owner = Owner(self.prefix, context.job_id, context.uid)
            return TransactionalWriter(self._schema, properties, owner, context)
        return PlainWriter(self._schema, properties, flushes=self.guarantee is DeliveryGuarantee.AT_LEAST_ONCE)

    def create_committer(
        self, object_store_options: dict[str, Any], *, job_id: str = "", uid: str = ""
    ) -> Committer | None:
        if not self._is_exact:
            return None
        return KafkaCommitter(
            Owner(self.prefix, job_id, uid),
            self.properties,
            takes_over=self._takes_over,
            accepts_unknown=self._accepts_unknown,
        )

    def exclusive_names(self) -> tuple[str, ...]:
        return (f"transactional_id_prefix {self.prefix!r}",) if self._is_exact else ()

    def check_checkpoints(self, interval_ms: int, *, bounded: bool) -> None:
        if not self._is_exact:
            return
        if not interval_ms and not bounded:
            raise InvalidJob(
                "an exactly-once Kafka sink without checkpoints would never commit",
                remedy="call env.enable_checkpointing(1000), or use DeliveryGuarantee.AT_LEAST_ONCE",
            )
        timeout_ms = int(self.properties[_TIMEOUT])
        if timeout_ms < 2 * interval_ms:
            raise InvalidJob(
                f"{_TIMEOUT}={timeout_ms} is too short for checkpoints every {interval_ms} ms: brokers would abort transactions "
                "that wait for their checkpoint, and their records would be lost",
                remedy=f"call set_property('{_TIMEOUT}', …) with a time above the interval plus the longest recovery, or take checkpoints more often",
            )

    def validate(self) -> None:
        """Check the topic, the transaction timeout and the permission to see a transaction on the cluster.

        Raises:
            InvalidJob: a package is missing, or a property is wrong.
            SinkError: the cluster, or a schema registry, does not answer or refuses access, or the topic does not exist.
        """
        self._schema.validate()
        kafka = package("confluent_kafka")
        complaints = Complaints()
        admin = create_client(
            lambda: package("confluent_kafka.admin").AdminClient(administrating(self.properties, complaints)),
            self.properties,
        )
        create_client(lambda: kafka.Producer(librdkafka(self.properties)), self.properties)
        topic = self._schema.fixed_topic
        try:
            metadata = admin.list_topics(topic, timeout=CONNECT_S) if topic else admin.list_topics(timeout=CONNECT_S)
            if topic is not None and (error := metadata.topics[topic].error) is not None:
                raise kafka.KafkaException(error)
            if self._is_exact:
                self._check_timeout(admin, next(iter(metadata.brokers)))
                self._check_coordinator()
        except kafka.KafkaException as error:
            problem = f"topic {topic!r} cannot be written" if topic else "the sink cannot write"
            admin.poll(0.1)  # this call delivers the client's error reports
            raise explained(SinkError, problem, error, self.properties, complaints.last) from error

    def _check_coordinator(self) -> None:
        """Check that the committing client can connect, and may see transactions of the prefix."""
        client = CoordinatorClient(self.properties, CONNECT_S, lambda: None)
        try:
            client.describe(f"{self.prefix}-")
        finally:
            client.close()

    def _check_timeout(self, admin: Any, broker: int) -> None:
        kafka = package("confluent_kafka.admin")
        resource = kafka.ConfigResource(kafka.ResourceType.BROKER, str(broker))
        future = admin.describe_configs([resource], request_timeout=CONNECT_S)[resource]
        try:
            most = int(future.result(CONNECT_S + 5)[_BROKERS_MAXIMUM].value)
        except (package("confluent_kafka").KafkaException, KeyError):
            return  # this user may not see the maximum; the first transaction reports the error
        wanted = int(self.properties[_TIMEOUT])
        if wanted > most:
            raise InvalidJob(
                f"{_TIMEOUT}={wanted} is above the brokers' {_BROKERS_MAXIMUM}={most}",
                remedy=f"call set_property('{_TIMEOUT}', '{most}'), or raise the brokers' maximum: it must exceed the longest time "
                "from a record to the commit after a recovery",
            )


class KafkaSinkBuilder(ClientBuilder):
    """PyFlink's builder of a KafkaSink, with the settings that Penstock adds."""

    def __init__(self) -> None:
        super().__init__()
        self._schema: KafkaRecordSerializationSchema | None = None
        self._guarantee = DeliveryGuarantee.NONE
        self._prefix = ""
        self._takes_over = False
        self._accepts_unknown = False

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> KafkaSinkBuilder:
        """Set the delivery guarantee. The default is NONE, as in Flink."""
        self._guarantee = delivery_guarantee
        return self

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> KafkaSinkBuilder:
        """Set the prefix of this sink's transactional ids, for exactly once. No other job may use the prefix."""
        self._prefix = transactional_id_prefix
        return self

    def set_record_serializer(self, record_serializer: KafkaRecordSerializationSchema) -> KafkaSinkBuilder:
        self._schema = record_serializer
        return self

    def set_takes_over(self, takes_over: bool) -> KafkaSinkBuilder:
        """Set whether the sink aborts transactions that another job, which has ended, has left open under the same
        prefix."""
        self._takes_over = takes_over
        return self

    def set_unknown_transactions(self, what: str) -> KafkaSinkBuilder:
        """Set the action for a restored transaction that the cluster has forgotten: "fail", or "accept" it as committed."""
        if what not in ("fail", "accept"):
            raise InvalidJob(f"{what!r} is not an action for unknown transactions", remedy="write 'fail' or 'accept'")
        self._accepts_unknown = what == "accept"
        return self

    def build(self) -> KafkaSink:
        """Return the sink.

        Raises:
            InvalidJob: a setting is missing or contradicts another setting, or the extra is not installed.
        """
        package("confluent_kafka")
        package("aiokafka")
        self._check_servers("a Kafka sink")
        if self._schema is None:
            raise InvalidJob("a Kafka sink needs a record serializer", remedy="call set_record_serializer(…)")
        if "transactional.id" in self._properties:
            raise InvalidJob(
                "the property transactional.id cannot be set, because the sink chooses an id for each transaction",
                remedy="call set_transactional_id_prefix('…') to set the beginning of the ids",
            )
        properties = self._properties
        if self._guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            if not re.fullmatch(r"[\w.\-]+", self._prefix):
                raise InvalidJob(
                    f"an exactly-once Kafka sink needs a valid transactional_id_prefix, got {self._prefix!r}",
                    remedy="call set_transactional_id_prefix('…') with letters, digits, '.', '_' and '-'. Only this job may use the prefix",
                )
            properties = {_TIMEOUT: str(_DEFAULT_TIMEOUT_MS), **properties}
        return KafkaSink(
            self._schema,
            properties,
            self._guarantee,
            self._prefix,
            takes_over=self._takes_over,
            accepts_unknown=self._accepts_unknown,
        )
