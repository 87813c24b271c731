"""The JobManager: Dispatcher, JobMaster, runners, cluster. The only package that imports pyspark."""
