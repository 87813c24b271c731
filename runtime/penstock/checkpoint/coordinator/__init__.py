"""The life of a checkpoint: triggered, pending, stored, complete, kept, deleted."""
