"""The runtime operators, by family: each a `penstock.graph.operator.Operator`, with its helpers beside it. `factory` makes them of
what a program recorded."""
