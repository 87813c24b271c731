"""The job as a graph: logical program -> StreamGraph -> JobGraph. The package does not depend on Spark or storage.

- operations: descriptions of operators, as the program records them
- transformation, program: the operations with their inputs and settings, and a whole job as it was written
- stream_graph, job_graph: the conversion to stages, exchanges and levels
- execution_plan: the program as JSON for people
- operator: the interface to the code that executes operations in tasks
- executor: the interface to the code that runs programs
"""
