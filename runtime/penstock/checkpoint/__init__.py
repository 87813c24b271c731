"""Checkpoints and savepoints: their storage, the leaders that may write them, their retention and their restore.

`docs/checkpoint-protocol.md` defines the protocol. The packages, from the outermost to the innermost:

    savepoint      savepoints by path: write, resolve, verify, list, read, dispose
    recovery       takes over a job: claims leadership, chooses the snapshot, assigns state to subtasks
    coordinator    schedule, acknowledgements, completion, commits, notifications, retention, deletion
    leadership     lets only one leader act; decides which manifests count; tests the guarantees of the store
    files          content of a job's folder: names, manifests, state files, checksums, references
    store          object stores and their retries; `faults` is a test double that fails on purpose
    events         messages between coordinator and JobMaster

The package does not know operators, graphs or Spark. The engine and the Kubernetes operator import this package, so
this file imports nothing.
"""
