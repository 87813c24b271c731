"""Command line of `make prose`."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tools.errors import ToolError
from tools.prose import tree
from tools.prose.rules import RULES, Finding

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Print the findings. Return 0 without findings, 1 with findings, 2 if the check cannot run."""
    parser = argparse.ArgumentParser(prog="prose", description="Check that texts are plain English.")
    parser.add_argument("paths", nargs="*", help="files or folders to check (default: whole tree)")
    parser.add_argument("--rule", choices=list(RULES), help="show only the findings of this rule")
    options = parser.parse_args(arguments)
    try:
        findings = tree.check(root, tree.files(root, options.paths))
    except ToolError as error:
        print(f"prose: {error}", file=sys.stderr)
        return 2
    shown = [finding for finding in findings if options.rule in {None, finding.rule}]
    print(report(shown), end="")
    return 1 if shown else 0


def report(findings: Sequence[Finding]) -> str:
    """Return the findings in the order of path and line, then the number of each rule."""
    lines = [str(finding) for finding in findings]
    lines.append(f"prose: {len(findings)} findings")
    rules = Counter(finding.rule for finding in findings)
    lines += [f"{number:7} {rule}: {RULES[rule]}" for rule, number in rules.most_common()]
    if findings:
        lines.append("Rewrite these sentences (CONTRIBUTING.md, Prose).")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
