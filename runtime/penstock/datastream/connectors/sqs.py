"""Amazon SQS. See `penstock.connectors.sqs`."""

from penstock.connectors.sqs.sink import SqsSink
from penstock.connectors.sqs.source import SqsRejectedMessage, SqsSource

__all__ = ["SqsRejectedMessage", "SqsSink", "SqsSource"]
