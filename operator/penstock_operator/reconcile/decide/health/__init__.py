"""How a job that nobody changes is doing: whether it gets anywhere, what has ended its containers, whether it is started again."""
