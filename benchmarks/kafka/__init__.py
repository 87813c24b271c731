"""What the Kafka measures are made of: the systems, the readings in the topic, the load, and what must come out."""
