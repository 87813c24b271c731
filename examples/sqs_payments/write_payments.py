"""Create the example's queues and write COUNT payments.

python write_payments.py COUNT
"""

from __future__ import annotations

import json
import sys

from botocore.session import get_session


def main(count: int) -> None:
    client = get_session().create_client("sqs")  # endpoint, region and keys from the environment
    client.create_queue(QueueName="alerts.fifo", Attributes={"FifoQueue": "true"})
    url = client.create_queue(QueueName="payments")["QueueUrl"]
    payments = [{"customer": f"c{n % 20}", "cents": 100 + n, "ok": n % 7 != 0} for n in range(count)]
    for begin in range(0, count, 10):
        entries = [
            {"Id": str(number), "MessageBody": json.dumps(payment)}
            for number, payment in enumerate(payments[begin : begin + 10])
        ]
        client.send_message_batch(QueueUrl=url, Entries=entries)


if __name__ == "__main__":
    main(int(sys.argv[1]))
