"""Other ways than descriptors to state in functions: attributes of a class, an argument, and the state of a subtask."""
