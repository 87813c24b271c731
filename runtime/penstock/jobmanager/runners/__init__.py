"""How an epoch is carried out: the seam (`runner`), in this process, batched or pipelined on Spark."""
