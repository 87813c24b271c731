"""The results of long actions."""

from __future__ import annotations

from penstock.rest import facts, models


def operation_result(operation: facts.Operation) -> models.OperationResult:
    if not operation.is_done:
        return models.OperationResult(status=models.QueueStatus(id="IN_PROGRESS"))
    return models.OperationResult(
        status=models.QueueStatus(id="COMPLETED"),
        operation=models.OperationOutcome(
            location=None if operation.failure else operation.location or None, failure_cause=_cause(operation)
        ),
    )


def checkpoint_result(operation: facts.Operation) -> models.CheckpointResult:
    if not operation.is_done:
        return models.CheckpointResult(status=models.QueueStatus(id="IN_PROGRESS"))
    return models.CheckpointResult(
        status=models.QueueStatus(id="COMPLETED"),
        operation=models.CheckpointOutcome(
            checkpoint_id=None if operation.failure else operation.checkpoint_id, failure_cause=_cause(operation)
        ),
    )


def _cause(operation: facts.Operation) -> models.FailureCause | None:
    if not operation.failure:
        return None
    return models.FailureCause(class_=operation.failure_class or "PenstockError", stack_trace=operation.failure)
