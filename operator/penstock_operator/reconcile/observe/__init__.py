"""What is there: reads cluster, master and storage, and understands what they say. Changes nothing."""
