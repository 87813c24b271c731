"""What a person is told about the own program: the line, the frames of an exception, one warning for each thing."""
