"""The life of a checkpoint: triggered, pending, stored, complete, kept, deleted.

    triggers, schedule ──▶ coordinator ──request──▶ subtasks
      may one be taken?        │  ▲ acks                    attempt: all that is forgotten at a restart
                               ▼  │
                            pending ── all have answered ──▶ publisher ── manifest stored ──▶ outcomes
                               │ timeout, refusal                                                │
                               ▼                                                                 ▼
                            abandoned ──▶ cleaner ◀── dropped ── completed ◀── complete ──▶ commits, savepoint copies
                                          deletes      keeps the newest n                    until they are confirmed

`coordinator` takes triggers and answers, and `outcomes` takes the results of background work. Both hold the same lock
and never wait for storage. `statistics` records each step, and `termination` deletes everything at the end of the job.
"""
