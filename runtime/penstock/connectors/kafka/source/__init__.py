"""KafkaSource: discover partitions, read each one in order with its offset as position, and convert messages to records in batches."""
