"""The reconcile loop of FlinkClusters: their pods, the upgrade that moves their FlinkJobs, and their deletion."""
