"""The runtime operators. Each is a `penstock.graph.operator.Operator`; `factory` makes them of what a program recorded."""
