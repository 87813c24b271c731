"""The history of ended jobs: an archive of each job, and REST and the dashboard for a folder of archives."""
