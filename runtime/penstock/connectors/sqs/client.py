"""An SQS queue, identified by its URL."""

from __future__ import annotations

import logging
import re
from urllib.parse import urlsplit

from penstock.common.errors import InvalidJob
from penstock.connectors.core.aws import AwsTarget

LOGGER = logging.getLogger("penstock.connectors.sqs")
_AMAZON = re.compile(r"sqs[.-]([a-z0-9-]+)\.amazonaws\.com(\.cn)?|([a-z0-9-]+)\.queue\.amazonaws\.com")


class Queue:
    """An SQS queue, identified by its URL.

    Args:
        url: the URL from SQS.
        region: the region. The default is the region in an Amazon URL. For other URLs, it is the environment's region.
        patience_s: how long the service may be unavailable or overloaded, in seconds.
    """

    def __init__(self, url: str, region: str = "", patience_s: float = 30.0) -> None:
        parts = urlsplit(url)
        self.url = url
        self.name = parts.path.rpartition("/")[2]
        if parts.scheme not in ("http", "https") or not parts.hostname or not self.name:
            raise InvalidJob(
                f"{url!r} is not the URL of an SQS queue",
                remedy="copy it from SQS: https://sqs.eu-central-1.amazonaws.com/123456789012/orders",
            )
        amazon = _AMAZON.fullmatch(parts.hostname)
        self.aws = AwsTarget(
            "sqs",
            f"queue {self.name!r}",
            "sqs",
            region or (amazon and (amazon[1] or amazon[3])) or "",
            None if amazon else f"{parts.scheme}://{parts.netloc}",
            missing=("NonExistentQueue", "QueueDoesNotExist"),
            rights="sqs:GetQueueAttributes; to readers sqs:ReceiveMessage, sqs:DeleteMessage and sqs:ChangeMessageVisibility; to writers sqs:SendMessage",
            patience_s=patience_s,
            logger=LOGGER,
        )

    @property
    def is_fifo(self) -> bool:
        return self.name.endswith(".fifo")
