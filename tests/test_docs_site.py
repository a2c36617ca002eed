"""The documentation builds as a site without a warning, and no page loads anything from elsewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LOADS = re.compile(r"""(?:src="|<link [^>]*href="|url[(]["']?|import[(]["'])https?:""")


def test_the_site_builds_without_warnings_and_loads_nothing(tmp_path, monkeypatch):
    pytest.importorskip("mkdocstrings", reason="the extra docs is not installed")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    monkeypatch.chdir(ROOT)
    build(load_config("mkdocs.yml", strict=True, site_dir=str(tmp_path)))
    pages = {page.relative_to(tmp_path).as_posix(): page.read_text() for page in tmp_path.rglob("*.html")}
    assert {"index.html", "reference.html", "tutorials/table.html", "changelog.html"} <= {*pages}
    styles = {str(file): file.read_text() for file in tmp_path.rglob("*.css")}
    assert [name for name, text in {**pages, **styles}.items() if LOADS.search(text)] == []
    assert "made_public" in pages["reference.html"] and "Not yet released" in pages["changelog.html"]
