"""make docs: the pages of the project as a site that can be searched, in build/site/.

    python docs/site/build.py

The pages are collected in build/pages/: docs/, pages of other folders, the notebook. On a
forge these link to files; here a link leads to the page of that file, or, where it has none, to the
forge, if `repo_url` in mkdocs.yml names one. The build fails for a link to no file or no heading, a
page that the menu lacks, a code block that could not be used as it stands (blocks.py), and what
is to be made of the code and is none of it (made.py).
"""

import json
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import made
from blocks import faults, titled

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "build" / "pages"
SITE = ROOT / "build" / "site"
CONFIGURATION = ROOT / "mkdocs.yml"
SHIM, SHIM_THERE = "iframe-worker.js", "iframe-worker/shim"
OTHERS = {  # pages outside docs/
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security-policy.md",
    "benchmarks/README.md": "benchmarks.md",
}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
CODE = re.compile(r"(^ *```.*?^ *```$|`[^`\n]+`)", re.M | re.S)
HEADING = re.compile(r"^#+ (.+)$", re.M)


def main() -> int:
    """Gather the pages, check them, and build the site; returns the exit code."""
    shutil.rmtree(PAGES, ignore_errors=True)
    sources = written()
    if errors := list(wrong(sources)):
        sys.stderr.writelines(f"docs: {fault}\n" for fault in errors)
        return 1
    for name, text in sources.items():
        put(name, text)
    for path in (ROOT / "docs").iterdir():
        if path.is_file() and path.suffix not in {".md", ".ipynb"}:
            shutil.copy(path, PAGES)
    shutil.copy(ROOT / "docs" / "site" / SHIM, PAGES)
    zensical = str(Path(sys.executable).parent / "zensical")
    build = [zensical, "build", "--strict", "--clean", "--config-file", str(CONFIGURATION)]
    process = subprocess.run(build, check=False)
    if process.returncode == 0:
        without_network()
    return process.returncode


def wrong(sources: dict[str, str]) -> Iterator[str]:
    """The errors in the pages, one sentence each."""
    for name, text in sources.items():
        yield from (f"{name}: {fault}" for fault in (*faults(text), *made.faults(text)))
    yield from broken(sources)
    yield from unlisted(sources)


def without_network() -> None:
    """Make the pages load their search script from the site itself."""
    for path in SITE.glob("*.html"):
        path.write_text(path.read_text().replace(f"https://unpkg.com/{SHIM_THERE}", SHIM))


def written() -> dict[str, str]:
    """Each file that is a page, by its path in the project, as Markdown."""
    names = [*OTHERS, *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
    notebooks = {f"docs/{path.name}": notebook(path) for path in (ROOT / "docs").glob("*.ipynb")}
    return {name: (ROOT / name).read_text() for name in names} | notebooks


def page_of(source: str) -> str | None:
    """The page that shows a file; null: none does."""
    if source in OTHERS:
        return OTHERS[source]
    name = source.removeprefix("docs/")
    return None if name == source or "/" in name else re.sub(r"\.ipynb$", ".md", name)


def put(source: str, text: str) -> None:
    """Write the page of a file, with links and blocks as the site has them."""
    page = page_of(source)
    assert page is not None
    parts = CODE.split(titled(made.filled(text)))
    parts[::2] = [LINK.sub(lambda link: _linked(link, source), part) for part in parts[::2]]
    PAGES.mkdir(parents=True, exist_ok=True)
    (PAGES / page).write_text("".join(parts))


def _linked(link: re.Match[str], source: str) -> str:
    mark, text, target = link.groups()
    path, hash_, anchor = target.partition("#")
    if not path or is_elsewhere(target):
        return link[0]
    destination = resolved(source, path)
    if page := page_of(destination):
        return f"{mark}[{_named(text, page)}]({page}{hash_}{anchor})"
    if forge := re.search(r"^repo_url: (\S+?)/?$", CONFIGURATION.read_text(), re.M):
        return f"[{text}]({forge[1]}/blob/HEAD/{destination})"
    return text if "`" in text else f"`{text}`"


def _named(text: str, page: str) -> str:
    """The text of a link; for the name of a file, that of its page in the menu."""
    name = re.search(rf"^ *- (.+): {re.escape(page)}$", CONFIGURATION.read_text(), re.M)
    return name[1] if name and re.fullmatch(r"[\w/.-]+\.(md|ipynb)", text) else text


def broken(sources: dict[str, str]) -> Iterator[str]:
    """The links that lead to no file of the project, or to no heading of one."""
    for source, text in sources.items():
        for _, _, target in LINK.findall("".join(CODE.split(text)[::2])):
            path, _, anchor = target.partition("#")
            destination = resolved(source, path) if path else source
            if is_elsewhere(target):
                continue
            if not (ROOT / destination).exists():
                yield f"{source}: there is no {destination}"
            elif anchor and anchor not in anchors(sources.get(destination, "")):
                yield f"{source}: {destination} has no heading #{anchor}"


def unlisted(sources: dict[str, str]) -> Iterator[str]:
    """The pages that are not in the menu."""
    menu = CONFIGURATION.read_text()
    for source in sources:
        if f": {page_of(source)}\n" not in menu:
            yield f"{source}: mkdocs.yml has no {page_of(source)} in its menu (nav)"


def is_elsewhere(target: str) -> bool:
    """Whether a link leads out of the project."""
    return re.match(r"[a-z]+:", target) is not None


def resolved(source: str, path: str) -> str:
    """The file that a relative link of a file names, by its path in the project."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), path))


def anchors(markdown: str) -> set[str]:
    """The names of the headings of a page, as forges and the site give them."""
    headings = HEADING.findall("".join(re.split(r"^```.*?^```$", markdown, flags=re.M | re.S)))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def notebook(path: Path) -> str:
    """A notebook as Markdown: its text, its code, and what that printed and drew."""
    cells = json.loads(path.read_text())["cells"]
    return "\n\n".join(part for cell in cells for part in _cell(cell)) + "\n"


def _cell(cell: dict[str, Any]) -> Iterator[str]:
    text = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield text
        return
    yield f"```python\n{text}\n```"
    for output in cell["outputs"]:
        data = output.get("data", {})
        output_text = "".join(output.get("text", data.get("text/plain", [])))
        if "image/png" in data:
            picture = "".join(data["image/png"]).replace("\n", "")
            yield f'<img alt="Output of the cell" src="data:image/png;base64,{picture}">'
        elif output_text.strip():
            yield f"```text\n{output_text.rstrip()}\n```"


if __name__ == "__main__":
    sys.exit(main())
