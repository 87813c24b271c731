"""Observation: read the cluster, the master and storage, and parse the results. This package changes nothing."""
