"""A queue of a test, and its messages."""

from __future__ import annotations

import uuid
from typing import Any

from tools.servers.sqs import SqsServer, client_to


class Queue:
    """A queue on the server with this URL. `create` creates it."""

    def __init__(self, server_url: str, name: str) -> None:
        self.name = name
        self.client = client_to(server_url)
        self.url = f"{server_url}/000000000000/{name}"

    def create(self, **attributes: str) -> None:
        self.client.create_queue(QueueName=self.name, Attributes=attributes)

    def fill(self, *texts: Any) -> None:
        for begin in range(0, len(texts), 10):
            some = [{"Id": str(n), "MessageBody": str(text)} for n, text in enumerate(texts[begin : begin + 10])]
            assert not self.client.send_message_batch(QueueUrl=self.url, Entries=some).get("Failed")

    @property
    def left(self) -> tuple[int, int]:
        """Return the number of messages that wait, and of messages in flight."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.client.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)["Attributes"]
        return int(found[names[0]]), int(found[names[1]])

    def read(self) -> list[dict[str, Any]]:
        """Return all waiting messages, in order of arrival, and delete them."""
        found: list[dict[str, Any]] = []
        while True:
            response = self.client.receive_message(QueueUrl=self.url, MaxNumberOfMessages=10, AttributeNames=["All"])
            if not response.get("Messages"):
                return found
            found += response["Messages"]
            handles = [message["ReceiptHandle"] for message in response["Messages"]]
            entries = [{"Id": str(n), "ReceiptHandle": handle} for n, handle in enumerate(handles)]
            self.client.delete_message_batch(QueueUrl=self.url, Entries=entries)


def new_queue(server: SqsServer, suffix: str = "", **attributes: str) -> Queue:
    """Create the queue of one test."""
    found = Queue(server.url, f"queue-{uuid.uuid4().hex[:8]}{suffix}")
    found.create(**attributes)
    return found
