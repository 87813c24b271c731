"""Random patterns and events for the comparison with `brute_force`."""

from __future__ import annotations

from random import Random

from penstock.cep.after_match_skip_strategy import AfterMatchSkipStrategy
from tests.unit.cep.brute_force import Case, Element

LETTERS = "abc"
FORBIDDEN = "n"


def case(random: Random) -> Case:
    elements = _sequence(random, depth=0)
    within = random.choice([0, 3, 5, 8])
    skip = _skip(random, elements)
    last = elements[-1]
    if skip.is_skip_strategy or last.contiguity == "not_followed_by":
        within = within or 6
    events, times, now = [], [], 0
    for _ in range(random.randrange(3, 8)):
        letter = random.choice(LETTERS + LETTERS + FORBIDDEN + "x")
        events.append(letter + str(random.randrange(4)))
        times.append(now)
        now += random.choice([0, 1, 1, 1, 2])
    return Case(elements, events, times, within, skip)


def _sequence(random: Random, depth: int, prefix: str = "") -> list[Element]:
    count = random.randrange(1, 4 if depth else 5)
    elements: list[Element] = []
    for index in range(count):
        element = _element(random, depth, f"{prefix}{index}", index)
        elements.append(element)
        if index == count - 1 and depth:
            break
        is_in_repeated_loop = depth > 0 and element.is_loop
        if random.random() < 0.15 and not (element.optional or element.greedy or element.parts or is_in_repeated_loop):
            elements += _not(random, element, f"{prefix}n{index}")
    if depth:
        elements[0].optional = False
    for index, element in enumerate(elements[:-1]):
        if elements[index + 1].contiguity.startswith("not") or _starts_with_optional(elements[index + 1]):
            element.greedy = False
    if any(element.contiguity == "not_followed_by" for element in elements):
        # An optional greedy loop after such a pattern is not greedy if it accepts no event. Flink has the same rule.
        for element in elements:
            element.greedy = element.greedy and not element.optional
    if elements[-1].contiguity == "not_followed_by":
        elements[-2].greedy = False
    if depth:
        elements[-1].greedy = False
    return elements


def _starts_with_optional(element: Element) -> bool:
    return bool(element.parts) and (element.optional or element.head.optional)


def _not(random: Random, before: Element, name: str) -> list[Element]:
    loop = before if before.is_loop else None
    if random.random() < 0.4:
        return [Element(name, "not_next", random.choice(LETTERS + FORBIDDEN), loop_before=loop)]
    return [Element(name, "not_followed_by", FORBIDDEN, loop_before=loop)]


def _element(random: Random, depth: int, name: str, index: int) -> Element:
    contiguity = random.choice(["next", "followed_by", "followed_by", "followed_by_any"])
    if index == 0:
        contiguity = "next"
    element = Element(name, contiguity)
    if depth < 2 and random.random() < 0.2:
        element.parts = _sequence(random, depth + 1, f"{name}.")
    else:
        element.letters = "".join(random.sample(LETTERS, random.choice([1, 1, 2])))
        element.rising = random.random() < 0.15
    if random.random() < 0.45:
        _loop(random, element)
    if random.random() < 0.2:
        element.optional = True
    if index and random.random() < 0.1 and not element.optional and not element.parts:
        element.gap = random.randrange(1, 4)
    return element


def _loop(random: Random, element: Element) -> None:
    element.is_loop = True
    element.least = random.choice([1, 1, 2])
    element.most = random.choice([None, element.least, element.least + 1, element.least + 2])
    element.inner = random.choice(["relaxed", "consecutive", "combinations"])
    if element.parts:
        if element.most is None and all(
            not part.is_loop and not part.optional and not part.parts for part in element.parts
        ):
            element.until = random.choice(["", "", FORBIDDEN])
            if any(part.contiguity.startswith("not") for part in element.parts):
                element.until = ""
        return
    element.greedy = element.inner != "combinations" and random.random() < 0.4
    if element.most is None:
        element.until = random.choice(["", "", FORBIDDEN, "c"])
    if random.random() < 0.1:
        element.loop_gap = random.randrange(1, 4)


def _skip(random: Random, elements: list[Element]) -> AfterMatchSkipStrategy:
    names = [element.name for element in elements if not element.parts and not element.contiguity.startswith("not")]
    found = [AfterMatchSkipStrategy.no_skip()] * 4
    found += [AfterMatchSkipStrategy.skip_to_next(), AfterMatchSkipStrategy.skip_past_last_event()]
    if names:
        name = random.choice(names)
        found += [AfterMatchSkipStrategy.skip_to_first(name), AfterMatchSkipStrategy.skip_to_last(name)]
    return random.choice(found)
