"""The job as a graph: program -> transformations -> JobGraph. The package does not depend on Spark or storage.

- operations: descriptions of operators, as the program records them
- transformation, program: the operations with their inputs and settings, and a whole job as it was written
- job_graph, job_graph_builder: stages, exchanges and levels, and the conversion to them
- execution_plan: the program as JSON for people
- operator: the interface to the code that executes operations in tasks
- executor: the interface to the code that runs programs
"""
