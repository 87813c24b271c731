"""Values of states that are bytes of another format, with separate rules for changes of the schema: Avro and Protobuf."""
