"""Commands that execute SQL: `penstock sql` and `penstock sql-gateway`."""
