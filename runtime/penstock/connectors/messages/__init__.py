"""The shared parts of connectors whose records are messages: queues (SQS, RabbitMQ) and logs (Kafka, Kinesis, streams of Redis).

- `decoder`, `source`: messages become records, and malformed messages go to a side output.
- `queue_source`, `seen_ids`: sources of queues, which acknowledge messages when the checkpoint that contains them is complete.
- `inbox`: messages that a thread has received and the task has not taken yet.
- `sink`, `aws_writer`: records become bodies, and requests with many bodies are sent from several threads.
"""
