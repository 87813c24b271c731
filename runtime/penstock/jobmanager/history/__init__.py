"""What is left of jobs that have ended: an archive of each, and REST and the dashboard on top of a folder of them."""
