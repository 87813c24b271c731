"""Checkpoints and savepoints: what is stored, who may store it, what is kept, how it is restored.

The protocol is written down in `docs/checkpoint-protocol.md`. From the outside in:

    savepoint      by path: written, resolved, verified, listed, read, disposed of
    recovery       take over a job: claim leadership, choose the snapshot; which state goes to which subtask
    coordinator    when to checkpoint, acks, completion, what to commit and to notify, what to keep and to delete
    leadership     one leader acts; which manifests count; does the store keep its promises
    files          what lies in a job's folder: names, manifests, state files, checksums, who needs which
    store          object stores and their retries; `faults` is the double that fails on purpose
    events         what coordinator and JobMaster say to each other

The package knows no operator, no graph and no Spark. It is imported by the engine and by the Kubernetes operator, so this
file imports nothing.
"""
