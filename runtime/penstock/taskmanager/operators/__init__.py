"""The runtime operators, by family. Each is a `penstock.graph.operator.Operator`, with its helpers beside it.

`factory` creates them from the operations that a program recorded.
"""
