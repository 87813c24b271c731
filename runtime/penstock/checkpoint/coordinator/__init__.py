"""The life of a checkpoint: triggered, pending, stored, complete, kept, deleted.

    triggers, schedule ──▶ coordinator ──request──▶ subtasks
      may one be taken?        │  ▲ acks                    attempt: all that is forgotten at a restart
                               ▼  │
                            pending ── all have answered ──▶ publisher ── manifest stored ──▶ outcomes
                               │ timeout, refusal                                                │
                               ▼                                                                 ▼
                            abandoned ──▶ cleaner ◀── dropped ── completed ◀── complete ──▶ commits, savepoint copies
                                          deletes      keeps the newest n                    until they are confirmed

`coordinator` takes triggers and answers, `outcomes` what ends in the background; both under one lock, without waiting for
storage. `statistics` is told of each step, `termination` deletes everything at the end of the job.
"""
