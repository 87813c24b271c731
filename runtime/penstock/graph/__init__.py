"""The job as a graph: logical program -> StreamGraph -> JobGraph. Knows neither Spark nor storage.

operations                   what operators are to do, as the program records it
transformation, program      the operations with their inputs and settings; a whole job as it was written
stream_graph, job_graph      from there to stages, exchanges and levels
execution_plan               the program as JSON for people
operator                     the seam to what carries operations out in tasks
executor                     the seam to what runs programs
"""
