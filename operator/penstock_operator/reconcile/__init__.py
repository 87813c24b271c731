"""The reconcile loop of FlinkJobs: observe → decide → persist the intent → act.

The module `job_loop` is one pass. Each of these modules may import the modules below it in this list, and none above
it. Modules on one line do not import each other:

- `act`: execution of one action
- `observe`: reads of the current state
- `core`, `at_rest`, `loop`: the pure core of a pass, the rules for stale data, the parts that FlinkSnapshots share
- `report`: phase, conditions, events, and the rule that decides when a status is written
- `ports`: interfaces to the outside world
- `ownership`, `presets`, `program_source`: the operator of a job, the defaults of a platform, programs by reference
- `decide`, `cache`: the next step as pure functions, the data that a loop keeps
- `observation`, `clock`: the observed facts, the operator's clock

The package must not import kopf.
"""
