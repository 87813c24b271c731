"""A revision that cannot be imported."""

import a_package_that_was_forgotten  # noqa: F401
