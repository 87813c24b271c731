"""The parts of the Kafka measures: the systems, the readings in the topic, the load, and the expected results."""
