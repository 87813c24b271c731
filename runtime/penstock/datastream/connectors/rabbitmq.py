"""RabbitMQ under PyFlink's names. See `penstock.connectors.rabbitmq`."""

from penstock.connectors.rabbitmq.config import RMQConnectionConfig
from penstock.connectors.rabbitmq.decoder import RMQRejectedMessage
from penstock.connectors.rabbitmq.sink import RMQSink
from penstock.connectors.rabbitmq.source import RMQSource

__all__ = ["RMQConnectionConfig", "RMQRejectedMessage", "RMQSink", "RMQSource"]
