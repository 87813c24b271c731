"""What to do next, and doing it: observe → decide → persist the intent → act.

`job_loop` is one pass. From the top, each may know those below it and none above:

- `act`          carries out one action
- `observe`      reads what is there
- `core`         the pure core of a pass: the next step, and what is reported of it; `loop` is what passes over a FlinkSnapshot share
- `report`       phase, conditions, events; when a status is worth a write
- `ports`        the outside world as the loops see it
- `presets`      what a platform presets; `ownership`: which of several operators looks after a job
- `decide`       the next step; pure
- `observation`  what was seen

Must not know kopf.
"""
