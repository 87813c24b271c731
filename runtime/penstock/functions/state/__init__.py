"""State in functions besides the descriptors: attributes of a class, an argument, and what a subtask keeps."""
