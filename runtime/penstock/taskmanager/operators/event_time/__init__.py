"""Where event time begins: timestamps of records, and watermarks made of them."""
