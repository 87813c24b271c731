"""The JobManager: Dispatcher, JobMaster, runners and cluster. Nearly all calls of Penstock to Spark are in this package.

process        the processes and their contents: session, Dispatcher, REST gateway, master, worker, embedded
job            one job: JobMaster, epochs, requests, end of an attempt, scheduler, settings
runners        the execution of an epoch: in this process, batched on Spark, or pipelined on Spark
cluster        the use of Spark: TaskManagers, slots, settings, secrets; `cluster/jvm` runs in Spark's JVMs
coordinators   the JobManager's part of sources and sinks
failover       the failures of a job, and the decision to restart
validation     checks of a job before it runs
"""
