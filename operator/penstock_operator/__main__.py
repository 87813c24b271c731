"""The program `penstock-operator`, also as `python -m penstock_operator`."""

from __future__ import annotations

import sys

from penstock.common.program.extras import missing_package, print_error


def main() -> None:
    try:
        from penstock_operator.process.main import app
    except ModuleNotFoundError as error:
        missing = missing_package(error)
        if missing is None:
            raise
        print_error(missing)
        sys.exit(1)
    app()


if __name__ == "__main__":
    main()
