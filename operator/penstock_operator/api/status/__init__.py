"""The status of a FlinkJob: the operator's observations, its finished operations and its next steps.

A user can answer these questions from the status, without logs:

- Which phase is the job in, since when, and for which generation?
- Which revision runs, from which state was the job restored, and why?
- Which state would the next restore use, and how old is it?
- Which operation is in progress, and what are its step and its deadline?
- Which error occurred last?

The status is also the operator's only memory. The operator writes `operation` before it executes a step. So a process
that restarts at any point can read which step was in progress.
"""
