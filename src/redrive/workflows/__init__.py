"""The workflow DLQ: failed tasks with retry policies, a retry processor, and the integration into an application.

dlq = DeadLetterQueue(store="sqlite:redrive.db")
await dlq.enqueue("wf_1", {"type": "code_sweep"}, ["/path/to/repo"], "Connection timeout")
await dlq.start_retry_processor(callback)
"""

from redrive.workflows.app import WorkflowApp
from redrive.workflows.integration import DLQIntegration, RepositoriesFailed, create_dlq_integration
from redrive.workflows.names import DeadLetterStatus, DLQIntegrationStrategy, ErrorCategory, RetryPolicy
from redrive.workflows.queue import DeadLetterQueue, Defaults
from redrive.workflows.recovery import ErrorRecoveryManager
from redrive.workflows.settings import WorkflowSettings
from redrive.workflows.task import FailedTask

__all__ = [
    "DLQIntegration",
    "DLQIntegrationStrategy",
    "DeadLetterQueue",
    "DeadLetterStatus",
    "Defaults",
    "ErrorCategory",
    "ErrorRecoveryManager",
    "FailedTask",
    "RepositoriesFailed",
    "RetryPolicy",
    "WorkflowApp",
    "WorkflowSettings",
    "create_dlq_integration",
]
