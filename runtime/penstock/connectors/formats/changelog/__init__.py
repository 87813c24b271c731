"""Changes of tables as other tools write them into topics and files, one JSON object for each: `Row`s with a `RowKind` (Debezium, Canal, Maxwell)."""
