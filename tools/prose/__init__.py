"""`make prose`: a check that docs, docstrings, comments, messages and test names are plain English.

`CONTRIBUTING.md` explains the rules to people. `rules.yaml` has the words that the rules forbid.

Vale, a linter for prose, was measured on this tree and does not fit. It sees neither docstrings of attributes nor error
messages, help texts and test names. It cannot match the start of a sentence in Python, needs a C compiler, and takes
three times as long.

- `passages`: one text with its line and its kind.
- `python_source`, `markdown`, `comments`: read the passages of a Python module, a Markdown page and any other file.
- `rules`: finds what is wrong with a passage.
- `tree`: lists the files and their findings.
- `cache`: remembers the findings of files that have not changed.
"""
