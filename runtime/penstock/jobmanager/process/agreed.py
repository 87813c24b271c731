"""Settings that a master and its workers each read from the same configuration. This module imports little, to keep a worker's process
small.
"""

from __future__ import annotations

from penstock.common.config import options
from penstock.common.config.memory import MIB, jvm_heap, task_manager_memory
from penstock.common.configuration import Configuration
from penstock.common.errors import ClusterError
from penstock.jobmanager.cluster.credentials import read_secret


def executor_memory_mb(settings: Configuration, slots: int | None = None) -> int:
    """Return the heap of an executor with that many slots, in MB. None means the configured number of slots."""
    return jvm_heap(task_manager_memory(settings, slots).heap) // MIB


def spark_secret(settings: Configuration) -> str:
    """Return the secret with which a master and its workers authenticate, from the file that the settings name.

    Raises:
        ClusterError: the settings name no file. Without a secret, every client of the master could run code in it.
    """
    path = settings.get(options.SPARK_SECRET_FILE)
    if not path:
        raise ClusterError(
            f"{options.SPARK_SECRET_FILE.key} is not set, but a master and its workers must authenticate each other",
            remedy=(
                "write one line of random characters into a file that only you can read "
                "(umask 077; openssl rand -hex 32 > FILE), copy it to the workers' machines, and set "
                f"{options.SPARK_SECRET_FILE.key} to its path for the master and for each worker"
            ),
        )
    return read_secret(path)
