"""The election of one leading process among the JobManagers of a cluster."""
