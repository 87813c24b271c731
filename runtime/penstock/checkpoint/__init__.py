"""Checkpoints and savepoints: what is stored, who may store it, what is kept, how it is restored.

The protocol is written down in `docs/checkpoint-protocol.md`. From the outside in:

    savepoint, snapshots   resolve, verify, list, dispose: readable without the engine (the Kubernetes operator uses them)
    recovery               take over a job: claim leadership, choose the snapshot, write the base
    coordinator            when to checkpoint, acks, completion, what to commit and to notify (driven by the JobMaster)
    restore                which state goes to which subtask of the new job (pure)
    registry, cleaner      who needs which shared file; deletion in the background
    fencing, lineage, probe   one leader acts; which manifests count; does the store keep its promises
    storage, retrying_store, object_store and its implementations; faults is the double that fails on purpose

The package knows no operator, no graph and no Spark. It is imported by the engine and by the Kubernetes operator, so this
file imports nothing.
"""
