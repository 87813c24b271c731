"""Ways to use state in functions without descriptors: attributes of a class, an argument, and the state of a subtask."""
