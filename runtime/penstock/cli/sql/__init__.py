"""The shell of `penstock sql`."""
