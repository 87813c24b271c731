"""The way of records from one subtask to the next: partitioners, buffers, rows, and the gate that receives them."""
