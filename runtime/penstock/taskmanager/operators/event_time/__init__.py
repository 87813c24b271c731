"""The start of event time: timestamps of records, and the watermarks made from them."""
