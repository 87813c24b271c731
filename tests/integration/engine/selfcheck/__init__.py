"""A job that checks itself, the processes it runs on, and what may be done to both."""

from tests.integration.engine.selfcheck.driver import Driver, start
from tests.integration.engine.selfcheck.job import Plan, build
from tests.integration.engine.selfcheck.output import problems_of, verify

__all__ = ["Driver", "Plan", "build", "problems_of", "start", "verify"]
