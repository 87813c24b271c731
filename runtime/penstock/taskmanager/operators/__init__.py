"""The runtime operators. Each is an `penstock.graph.operator.Operator`."""
