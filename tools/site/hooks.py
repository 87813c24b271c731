"""The hooks that MkDocs calls: pages from outside of `docs/`, links to them, and lists as GitHub reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

from tools.site.markdown import for_mkdocs, page_of, relink

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ROOT / "build" / "site-pages"
TEXTS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")
LANGUAGES = {".py": "python", ".yaml": "yaml", ".sql": "sql", ".md": "markdown", ".sh": "sh", ".toml": "toml"}


def on_files(files: Any, config: Any) -> Any:
    """Add the README and the generated pages, and a page for each file outside of `docs/` that a page links."""
    outside = set(TEXTS)
    for page in sorted((ROOT / "docs").rglob("*.md")):
        path = str(page.relative_to(ROOT))
        outside |= relink(page.read_text(), str(Path(path).parent), page_of(path), _is_page)[1]
    for text in TEXTS:
        outside |= relink((ROOT / text).read_text(), ".", page_of(text), _is_page)[1]
    for path in sorted(outside):
        files.append(File.generated(config, page_of(path), content=_shown(path)))
    for page in sorted(GENERATED.rglob("*.md")):
        files.append(File.generated(config, str(page.relative_to(GENERATED)), content=page.read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Return the Markdown of a page in the dialect of MkDocs, with links that work in the site."""
    source = page.file.src_uri
    if source.startswith("source/"):
        origin = source.removeprefix("source/").removesuffix(".md")
    else:
        origin = next((text for text in TEXTS if page_of(text) == source), f"docs/{source}")
    if origin.endswith(".md") and (ROOT / origin).exists():
        markdown = relink(markdown, str(Path(origin).parent), source, _is_page)[0]
    return for_mkdocs(markdown)


def _is_page(path: str) -> bool:
    return (ROOT / path).is_file()


def _shown(path: str) -> str:
    """Return the Markdown that shows a file or the names in a folder of the repository."""
    place = ROOT / path
    if path in TEXTS:
        return place.read_text()
    if place.is_dir():
        names = sorted(str(file.relative_to(place)) for file in place.rglob("*") if file.suffix in LANGUAGES)
        return f"# {path}\n\nThis folder of the repository contains these files:\n\n" + "".join(
            f"- `{name}`\n" for name in names
        )
    if place.suffix == ".md":
        return place.read_text()
    return f"# {path}\n\n````{LANGUAGES.get(place.suffix, 'text')}\n{place.read_text()}\n````\n"
