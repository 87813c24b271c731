"""The JobManager: Dispatcher, JobMaster, runners, cluster. Nearly all that Penstock asks of Spark is asked here.

process        the processes and what they hold: session, Dispatcher, REST's gateway, master, worker, embedded
job            one job: JobMaster, epochs, requests, what ends an attempt, scheduler, settings
runners        how an epoch is carried out: in this process, batched or pipelined on Spark
cluster        what Spark is asked for: Master, workers, slots, secrets; `cluster/jvm` runs in Spark's JVMs
coordinators   the JobManager's half of sources and sinks
failover       what a job can fail with, and whether it is restarted
validation     what is refused before anything runs
"""
