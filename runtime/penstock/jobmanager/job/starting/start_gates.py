"""The waits of a job whose processes are started in advance: for the leadership, and for the release. Nothing is written before."""

from __future__ import annotations

import logging
from collections.abc import Callable

from penstock.common.errors import StorageError
from penstock.jobmanager.job.starting.start_steps import WAITING_FOR_RELEASE, WAITING_TO_LEAD, StartSteps

RELEASE_POLL_S = 0.25
"""Interval in seconds of checks for the release of a job that was prepared ahead of time."""
_LEAD_POLL_S = 0.5
"""Interval in seconds at which a waiting job handles requests, such as the end of its process."""

logger = logging.getLogger(__name__)


def wait_for_release(steps: StartSteps, is_released: Callable[[], bool], pause: Callable[[float], None]) -> None:
    """Wait for the release while processes start. If storage does not respond, continue to wait.

    Args:
        pause: function that waits for the given seconds and handles requests.
    """
    steps.begin(WAITING_FOR_RELEASE)
    silent = False
    while True:
        try:
            if is_released():
                return
            silent = False
        except StorageError as error:
            if not silent:
                logger.warning("cannot read whether the job is released: %s", error.message)
            silent = True
        pause(RELEASE_POLL_S)


def wait_to_lead(steps: StartSteps, waits_to_lead: Callable[[float], bool], pause: Callable[[float], None]) -> None:
    """Wait until this process leads. The program is loaded, and its graph is built. If storage does not respond, continue to wait.

    Args:
        waits_to_lead: function that waits for the given seconds, and returns whether this process leads and knows the requests to the
            previous leader.
        pause: function that waits for the given seconds and handles requests, such as the end of the process.
    """
    steps.begin(WAITING_TO_LEAD)
    silent = False
    while True:
        try:
            if waits_to_lead(_LEAD_POLL_S):
                return
            pause(0.0)
        except StorageError as error:
            if not silent:
                logger.warning("cannot read the requests to the previous leader yet: %s", error.message)
            silent = True
            pause(_LEAD_POLL_S)
