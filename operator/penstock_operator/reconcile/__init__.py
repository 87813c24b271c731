"""The reconcile loop of FlinkJobs: observe → decide → persist the intent → act.

The module `job_loop` is one pass. Each of these modules may import the modules below it in this list, and none above
it:

- `act`          executes one action
- `observe`      reads the current state
- `core`         pure core of a pass: the next step and its report. `loop` has the parts that FlinkSnapshots share
- `report`       phase, conditions, events, and the rule when a status is written
- `ports`        interfaces to the outside world
- `presets`      defaults of a platform. `ownership`: the operator that manages a job
- `decide`       the next step, as pure functions
- `observation`  the observed facts

The package must not import kopf.
"""
