"""Write the figures of a run into the pages.

    python -m benchmarks connectors --json > FILE
    python -m benchmarks.connectors.tables FILE

The comment in a cell identifies it: `<!-- kafka.source -->`. The cell gets the µs per record and, in parentheses, the multiple of
the bare client's. A block between `<!-- connectors: all -->` or `<!-- connectors: measured -->` and `<!-- end -->` is replaced.
It has the table of all figures, or the sentence about their origin. A run of only some systems changes only their cells and
leaves the blocks.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "connectors.md", DOCS / "benchmarks.md", *sorted((DOCS / "connectors").glob("*.md"))]
CELL = re.compile(r"\|[^|\n]*<!-- ([a-z]+\.[a-z-]+) --> *(?=\|)")
_BLOCK = r"(<!-- connectors: {} -->\n).*?(<!-- end -->)"


def rendered(page: str, result: dict[str, Any], *, whole: bool = True) -> str:
    """Return the page with the figures of a result.

    Args:
        whole: the run covers all systems.

    >>> rendered("| Kafka | ? <!-- kafka.source --> |", {"connectors": {"kafka.source": {"cpu_us": 2.512, "ratio": 1.104}}}, whole=False)
    '| Kafka | 2.5 (1.1) <!-- kafka.source --> |'
    """
    found = result["connectors"]
    page = CELL.sub(
        lambda match: f"| {_cost(found[match[1]])} <!-- {match[1]} --> " if match[1] in found else match[0], page
    )
    if whole:
        for name, block in (("all", _table(result)), ("measured", _measured(result))):
            page = re.sub(
                _BLOCK.format(name), lambda match, block=block: match[1] + block + match[2], page, flags=re.DOTALL
            )
    return page


def _cost(figures: dict[str, Any]) -> str:
    ratio = f" ({_short(figures['ratio'])})" if "ratio" in figures else ""
    return f"{_short(figures['cpu_us'])}{ratio}"


def _short(number: float) -> str:
    """Format a number.

    >>> _short(0.1234), _short(2.512), _short(104.6)
    ('0.12', '2.5', '105')
    """
    return f"{number:.2f}" if number < 1 else f"{number:.1f}" if number < 10 else f"{number:.0f}"


def _table(result: dict[str, Any]) -> str:
    lines = [
        "| Case | Records | µs | Records/s | Bare client | µs of the client | Records/s of the client | Ratio |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, figures in result["connectors"].items():
        own = f"| `{name}` | {figures['records']:,} | {_short(figures['cpu_us'])} | {figures['records_s']:,} |"
        bare = figures.get("bare")
        other = (
            " none | | | |"
            if bare is None
            else (f" {bare['client']} | {_short(bare['cpu_us'])} | {bare['records_s']:,} | {figures['ratio']:.2f} |")
        )
        lines.append(own + other)
    return "\n".join(lines) + "\n"


def _measured(result: dict[str, Any]) -> str:
    machine = result["machine"]
    load = f"load {machine['load'][0]:.1f} before, {machine['load_after'][0]:.1f} after"
    runs = result["repetitions"]
    how = (
        "each job and each client program ran once"
        if runs == 1
        else f"the least of {runs} runs of each job and each client program, in turn"
    )
    return f"{machine['cores']} cores ({machine['processor']}), Python {machine['python']}, {machine['date']}, {load}: {how}.\n"


def main(path: str) -> int:
    """Write the pages. Return exit code 1 and write nothing if the result has problems."""
    result = json.loads(Path(path).read_text().splitlines()[-1])
    if result["problems"]:
        print(f"no page was changed, because the run had problems: {result['problems']}", file=sys.stderr)
        return 1
    for page in PAGES:
        text = page.read_text()
        page.write_text(rendered(text, result, whole=result["whole"]))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
