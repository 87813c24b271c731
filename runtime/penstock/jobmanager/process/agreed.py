"""What a master and its workers read of the same configuration, each for itself. Imports little: a worker's process is small."""

from __future__ import annotations

from penstock.common.config import options
from penstock.common.config.memory import MIB, jvm_heap, task_manager_memory
from penstock.common.configuration import Configuration
from penstock.common.errors import ClusterError
from penstock.jobmanager.cluster.credentials import read_secret


def executor_memory_mb(settings: Configuration, slots: int | None = None) -> int:
    """Heap of an executor, MB; None: of as many slots as configured."""
    return jvm_heap(task_manager_memory(settings, slots).heap) // MIB


def spark_secret(settings: Configuration) -> str:
    """What a master and its workers prove to each other, from the file that the settings name.

    Raises:
        ClusterError: they name none. Whoever reaches a master without one could run code in it.
    """
    path = settings.get(options.SPARK_SECRET_FILE)
    if not path:
        raise ClusterError(
            f"{options.SPARK_SECRET_FILE.key} is not set: a master and its workers must prove to each other who they are",
            remedy=(
                "write one line of random characters into a file that only you can read "
                "(umask 077; openssl rand -hex 32 > FILE), copy it to the workers' machines, and set "
                f"{options.SPARK_SECRET_FILE.key} to its path for the master and for each worker"
            ),
        )
    return read_secret(path)
