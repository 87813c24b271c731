"""What runs and serves the process of the operator: command line, configuration, Lease, watches, controller, probes, metrics."""
