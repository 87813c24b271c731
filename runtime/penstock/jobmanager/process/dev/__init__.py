"""`penstock dev`: a process that watches a program's files, and a forked process for each run of the program."""
