"""The autoscaler of a job: a pure decision over recorded measurements, and the loop that records, decides and requests rescales.

It may know the job graph, the metrics of tasks and the requests of a job. It does not know pods or workers. It publishes the
wanted parallelism, and the manager of the workers provides slots.
"""
