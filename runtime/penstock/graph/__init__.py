"""The job as a graph: logical program -> StreamGraph -> JobGraph. Knows neither Spark nor storage."""
