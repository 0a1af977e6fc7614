"""Build the site from the files as they are in the repository.

Pages outside of docs/ (CONTRIBUTING.md, CHANGELOG.md, SECURITY.md and the examples) join the site.
Their links are written for a reader of the repository; on the site each one leads to the same
file's page.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).parent))

import console_blocks

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages outside of docs/. Require that transcripts have printed what pages show."""
    if found := [each for page in console_blocks.pages() for each in console_blocks.problems(page)]:
        raise PluginError("\n".join(found))
    for path in pages_outside():
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Adapt the links."""
    source = page.file.src_uri
    folder = posixpath.dirname(source if (ROOT / source).is_file() else f"docs/{source}")
    return LINK.sub(lambda link: _on_site(link, folder, posixpath.dirname(source)), markdown)


def pages_outside() -> list[str]:
    """Return the paths of all pages outside of docs/, relative to the repository."""
    patterns = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "examples/README.md")
    patterns += ("examples/*/README.md",)
    found = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    return [path.relative_to(ROOT).as_posix() for path in found]


def _on_site(link: re.Match[str], folder: str, site_folder: str) -> str:
    """Return a link of the repository as one of the site; only its text if the file has no page."""
    image, text, target, anchor = link[1], link[2], link[3], link[4] or ""
    if "://" in target:
        return link[0]
    path = posixpath.normpath(posixpath.join(folder, target))
    if (ROOT / path).is_dir():
        path = f"{path}/README.md"
    if path.startswith("docs/"):
        path = path.removeprefix("docs/")
    elif path not in pages_outside():
        return text if (ROOT / path).exists() else link[0]
    return f"{image}[{text}]({posixpath.relpath(path, site_folder or '.')}{anchor})"
