"""What is logged: at which level, in which form, into which bounded files, and without secrets."""
