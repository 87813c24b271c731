"""The runtime operators. Each is an `penstock.taskmanager.operators.operator.Operator`."""
