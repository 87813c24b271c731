"""Run programs in one process, one after the other: `python run_programs.py [--in-process] PROGRAM…`.

The interpreter with PyFlink runs this program, too, so it uses only the standard library.
"""

from __future__ import annotations

import logging
import runpy
import sys
import traceback

MARK = "=== program: "
"""The prefix of the line before a program's output."""


def main(arguments: list[str]) -> None:
    logging.basicConfig = lambda **_: (
        None
    )  # otherwise the log output of libraries would be part of the programs' output
    settings = [argument for argument in arguments if argument.startswith("--")]
    for path in arguments[len(settings) :]:
        print(f"{MARK}{path}", flush=True)
        sys.argv = [path, *settings]
        try:
            runpy.run_path(path, run_name="__main__")
        except Exception:
            traceback.print_exc()
            print("failed: see the error output", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
