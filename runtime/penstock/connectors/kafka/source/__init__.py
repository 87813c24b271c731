"""KafkaSource: finds partitions, reads each in order with its offset as position, turns messages into records by the batch."""
