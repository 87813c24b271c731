"""The execution of an epoch: the interface (`runner`), and its implementations in this process, batched on Spark and pipelined on Spark."""
