"""The findings of one passage. Pure: the rules' words come from `rules.yaml`, the passage from a reader."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from tools.prose.passages import CODE, Exemption, Kind, Passage, Reading

RULES = {
    "opener": "a sentence starts with a word that hides its subject",
    "docstring-start": "a docstring starts with a preposition or a relative pronoun",
    "docstring-verb": "a function's docstring does not start with a verb",
    "word": "an archaic or invented word, or a passive without an actor",
    "long-sentence": "a sentence has more than 25 words",
    "long-paragraph": "a paragraph has more than 5 lines of 120 characters",
    "private-code": "an item number of a list that is not in the project",
    "test-name": "a test's name has a word or an opener that is not plain English",
    "exception": "an exception has no reason, names no rule, or allows nothing",
}
"""Each rule and what it finds."""

_FRAGMENTS = {Kind.FRAGMENT, Kind.TRAILING_COMMENT, Kind.HEADING}
_DOCSTRINGS = {Kind.DOCSTRING, Kind.FUNCTION_DOCSTRING}
_ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|etc|vs|cf|approx|resp|incl|No|Fig|St|Dr|Mr)\.$")
_SENTENCE_END = re.compile(
    r"(?<=[.!?])[\"')\]”\u2019]*\s+(?=[\"'(“\u2018]?[A-Za-z0-9])|(?<=…)\s+(?=[A-Z])|(?<=:)\s+(?=[A-Z][a-z]+ [a-z])"
)
_WORD = re.compile(r"[A-Za-z0-9][\w'\u2019.,/%-]*")


@dataclass(frozen=True, order=True)
class Finding:
    """One violation of one rule."""

    path: str
    line: int
    rule: str
    text: str
    """The sentence."""
    advice: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.text}\n    {self.advice}"


@dataclass(frozen=True)
class Rules:
    """The words and limits of `rules.yaml`."""

    data: Mapping[str, Any] = field(repr=False)

    @cached_property
    def _opener(self) -> re.Pattern[str]:
        return _first("|".join(self.data["openers"]))

    @cached_property
    def _fragment_opener(self) -> re.Pattern[str]:
        return _first("|".join(self.data["fragment_openers"]))

    @cached_property
    def _preposition(self) -> re.Pattern[str]:
        return _first("|".join(self.data["docstring_prepositions"]))

    @cached_property
    def _not_verb(self) -> re.Pattern[str]:
        return _first("|".join(self.data["not_verbs"]))

    @cached_property
    def _words(self) -> re.Pattern[str]:
        return re.compile(rf"(?<![\w-])(?:{'|'.join(self.data['words'])})(?![\w-])", re.IGNORECASE)

    @cached_property
    def _code(self) -> re.Pattern[str]:
        return re.compile(self.data["codes"]["pattern"])

    def _remedy(self, table: str, found: re.Match[str]) -> str:
        for pattern, remedy in self.data[table].items():
            one = re.compile(pattern, re.IGNORECASE).match(found.string, found.start())
            if one is not None and one.end() == found.end():
                return str(remedy)
        return "say it in plain words"

    def findings(self, path: str, reading: Reading) -> list[Finding]:
        """Return the findings of a file that no exception allows, and the exceptions that are wrong."""
        used: set[tuple[int, str]] = set()
        found: list[Finding] = []
        for passage in reading.passages:
            allowing = [mark for mark in reading.exemptions if reading.covers(mark, passage)]
            for finding in self._passage(path, passage):
                marks = [mark for mark in allowing if finding.rule in mark.rules]
                used.update((mark.line, finding.rule) for mark in marks)
                if not any(mark.reason for mark in marks):
                    line = reading.line_of(passage, finding.text)
                    found.append(replace(finding, line=line, text=finding.text.replace(CODE, "`…`")))
        for mark in reading.exemptions:
            found += [Finding(path, mark.line, "exception", *problem) for problem in _problems(mark, used)]
        return sorted(found)

    def _passage(self, path: str, passage: Passage) -> Iterator[Finding]:
        if passage.kind is Kind.TEST_NAME:
            yield from self._test_name(path, passage)
            return
        yield from self._docstring_start(path, passage)
        parts = sentences(passage.text)
        for place, sentence in enumerate(parts):
            for rule, advice in self._sentence(passage, sentence, place, path):
                yield Finding(path, passage.line, rule, sentence, advice)
        limits = self.data["limits"]
        room = limits["paragraph_lines"] * limits["line_characters"]
        if len(passage.text) > room:
            size = f"{len(passage.text)} characters; {room} at most: split it, or make a list of it"
            yield Finding(path, passage.line, "long-paragraph", f"{parts[0]} …", size)

    def _docstring_start(self, path: str, passage: Passage) -> Iterator[Finding]:
        if passage.kind not in _DOCSTRINGS or not passage.starts or self._opener.match(passage.text):
            return
        first = sentences(passage.text)[0]
        if start := self._preposition.match(passage.text):
            advice = f'"{start[0]}": start with a verb (function) or a noun (class, attribute)'
            yield Finding(path, passage.line, "docstring-start", first, advice)
        elif passage.kind is Kind.FUNCTION_DOCSTRING and (start := self._not_verb.match(passage.text)):
            advice = f'"{start[0]}": start with a verb, such as "Return {start[0].lower()} …"'
            yield Finding(path, passage.line, "docstring-verb", first, advice)

    def _sentence(self, passage: Passage, sentence: str, place: int, path: str) -> Iterator[tuple[str, str]]:
        pattern = self._fragment_opener if passage.kind in _FRAGMENTS and place == 0 else self._opener
        start = pattern.match(sentence)
        if start and not sentence.endswith("?"):
            yield "opener", f'"{start[0]}": {self._remedy("openers", start)}'
        for word in self._words.finditer(sentence):
            yield "word", f'"{word[0]}": {self._remedy("words", word)}'
        count = len(_WORD.findall(sentence))
        if count > self.data["limits"]["sentence_words"]:
            yield "long-sentence", f"{count} words: say one thing per sentence"
        codes = [code for code in self._code.findall(sentence) if self._is_private(code, path)]
        if codes:
            yield "private-code", f"{', '.join(codes)}: say the rule, or link the page that defines it"

    def _is_private(self, code: str, path: str) -> bool:
        """Return whether a code, or an end of a range of codes, is neither a term of the field nor defined on its page."""
        codes = self.data["codes"]
        return any(end not in codes["allowed"] for end in code.split("-")) and code[0] not in codes["defined"].get(
            path, ""
        )

    def _test_name(self, path: str, passage: Passage) -> Iterator[Finding]:
        behaviour = passage.text.removeprefix("test ")
        name = passage.text.replace(" ", "_")
        if start := self._fragment_opener.match(behaviour):
            yield Finding(path, passage.line, "test-name", name, f'"{start[0]}": name the thing and what it does')
        for word in self._words.finditer(behaviour):
            advice = f'"{word[0]}": {self._remedy("words", word)}'
            yield Finding(path, passage.line, "test-name", name, advice)


def sentences(text: str) -> list[str]:
    """Split a paragraph into its sentences.

    >>> sentences("Stop the job, e.g. by REST. Then wait.")
    ['Stop the job, e.g. by REST.', 'Then wait.']
    """
    found: list[str] = []
    for part in _SENTENCE_END.split(text):
        if found and (_ABBREVIATION.search(found[-1])):
            found[-1] += f" {part}"
        elif part:
            found.append(part)
    return found


def load(path: Path = Path(__file__).parent / "rules.yaml") -> Rules:
    """Read the rules."""
    return Rules(yaml.safe_load(path.read_text()))


def _first(words: str) -> re.Pattern[str]:
    return re.compile(rf"(?:{words})(?![\w'\u2019-])", re.IGNORECASE)


def _problems(mark: Exemption, used: set[tuple[int, str]]) -> Iterator[tuple[str, str]]:
    shown = f"prose: allow {', '.join(sorted(mark.rules))}"
    if not mark.reason:
        yield shown, "no reason: write it behind a colon"
    for rule in sorted(mark.rules):
        if rule not in RULES:
            yield shown, f"there is no rule {rule!r}; the rules are {', '.join(RULES)}"
        elif (mark.line, rule) not in used:
            yield shown, f"nothing here breaks {rule}: remove it"
