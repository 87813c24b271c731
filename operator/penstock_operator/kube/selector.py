"""Label selectors with the syntax and the rules of Kubernetes. They test a single object in the same way as the API
server filters a list.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEY = r"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s*\(\s*({_VALUE}(?:\s*,\s*{_VALUE})*)\s*\)")
_EQUAL = re.compile(rf"({_KEY})\s*(==|=|!=)\s*({_VALUE})")
_PRESENT = re.compile(rf"(!?)\s*({_KEY})")


@dataclass(frozen=True)
class Requirement:
    """One requirement of a selector. An object must meet all requirements of the selector."""

    key: str
    verb: Literal["in", "notin", "exists", "absent"]
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels meet the requirement. A missing label does not meet `in`, but meets `notin`, as
        in the API server.
        """
        if self.verb == "in":
            return labels.get(self.key) in self.values
        if self.verb == "notin":
            return labels.get(self.key) not in self.values
        return (self.key in labels) == (self.verb == "exists")


@dataclass(frozen=True)
class Selector:
    """A list of requirements. An empty selector selects everything."""

    text: str = ""
    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the selector selects an object with these labels."""
        return all(requirement.holds(labels) for requirement in self.requirements)


def parse_selector(text: str) -> Selector:
    """Parse a selector such as `a=b,c!=d,e in (f,g),h notin (i),j,!k`.

    Raises:
        ValueError: the text is not a selector. The message contains the position of the error.

    >>> parse_selector("team in (a, b),!legacy").matches({"team": "b"})
    True
    >>> parse_selector("team!=a").matches({})
    True
    """
    found, rest = [], text.strip()
    while rest:
        requirement, rest = _first(rest)
        found.append(requirement)
        if rest and not rest.startswith(","):
            msg = f"{text!r} is not a label selector, from {rest!r} on: write a=b, a!=b, a in (b,c), a notin (b), a or !a, with commas"
            raise ValueError(msg)
        following = rest[1:].strip()
        if rest and not following:
            msg = f"{text!r} ends with a comma: it is not a label selector"
            raise ValueError(msg)
        rest = following
    return Selector(text.strip(), tuple(found))


def _first(text: str) -> tuple[Requirement, str]:
    if match := _SET.match(text):
        values = frozenset(value.strip() for value in match[3].split(","))
        return Requirement(match[1], "in" if match[2] == "in" else "notin", values), text[match.end() :].lstrip()
    if match := _EQUAL.match(text):
        verb: Literal["in", "notin"] = "notin" if match[2] == "!=" else "in"
        return Requirement(match[1], verb, frozenset({match[3]})), text[match.end() :].lstrip()
    if match := _PRESENT.match(text):
        return Requirement(match[2], "absent" if match[1] else "exists"), text[match.end() :].lstrip()
    msg = (
        f"{text!r} is not a label selector: write a=b, a!=b, a in (b,c), a notin (b), a or !a, with commas between them"
    )
    raise ValueError(msg)
