"""What the threads of a process do: looked at once, or over some seconds."""
