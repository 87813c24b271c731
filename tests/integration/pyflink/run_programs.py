"""Runs programs in one process, one after the other: `python run_programs.py [--in-process] PROGRAM…`.

Also run by the interpreter that has PyFlink: nothing but the standard library is used.
"""

from __future__ import annotations

import logging
import runpy
import sys
import traceback

MARK = "=== program: "
"""Begins the line before what a program prints."""


def main(arguments: list[str]) -> None:
    logging.basicConfig = lambda **_: None  # programs would have what libraries log among what they print
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
