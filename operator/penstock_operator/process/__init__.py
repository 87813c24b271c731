"""The process of the operator: command line, configuration, Lease, watches, controller, probes, metrics."""
