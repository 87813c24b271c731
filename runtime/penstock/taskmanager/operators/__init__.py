"""The runtime operators. Each is an `penstock.taskmanager.operator.Operator`."""
