"""Values of states that are bytes of another format, with rules of its own for schemas that change: Avro, Protobuf."""
