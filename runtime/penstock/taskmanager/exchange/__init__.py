"""How records get from one subtask to the next: partitioners, buffers, rows on their way, the receiving gate."""
