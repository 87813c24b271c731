"""From a snapshot to a running job: who takes over and from what, and which state goes to which subtask."""
