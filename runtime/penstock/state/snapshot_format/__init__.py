"""How state lies in the files of a snapshot, whichever backend wrote them: rows, and segments of rows."""
