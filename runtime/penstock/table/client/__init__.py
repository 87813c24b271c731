"""Sessions that execute SQL scripts and single statements: the base of `penstock sql`, of `job.sql` and of the SQL gateway."""
