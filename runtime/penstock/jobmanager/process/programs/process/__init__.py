"""The process of a program in a session cluster, and the process that forks it."""
