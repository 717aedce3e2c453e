"""The documentation: its links lead somewhere, it is all reached, its site builds with every tutorial run, and what
people ask first is found in two clicks."""

import re
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fedclade.config import Config, presets

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
TEXTS = [*PAGES, *ROOT.glob("*.md"), *(ROOT / "examples").rglob("*.md")]
FOLDERS = ("tutorials", "how-to", "reference", "explanation", "results")

# A newcomer's question, and the page that answers it.
QUESTIONS = {
    "How do I get started?": "tutorials/first-run",
    "How do I use my own data?": "how-to/own-data",
    "How do I use my own model?": "how-to/own-model",
    "How do I use my own clustering method?": "how-to/own-method",
    "How do I add my own metric?": "how-to/own-metric",
    "How do I simulate measured channels?": "how-to/traces",
    "How do I use a GPU?": "how-to/gpu",
    "How do I use more machines?": "how-to/ray",
    "How do I export a model and use it?": "how-to/export",
    "How do I go on with a run that was stopped?": "how-to/resume",
    "How do I read the report?": "how-to/read-the-report",
    "How do I run it on real devices?": "how-to/deploying",
    "How do I reproduce the paper?": "tutorials/reproduce-the-paper",
    "What does this setting mean?": "reference/config",
    "Where is the method wrong?": "explanation/clustering",
}


@cache
def text_of(page: Path) -> str:
    """A page without its blocks of code, in which brackets mean something else."""
    return re.sub(r"^(```|~~~).*?^\1", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


@cache
def anchors(page: Path) -> set[str]:
    """What a link to a heading of the page may say: its words in small letters, joined by hyphens."""
    headings = re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    found = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}
    if "generated: config" in page.read_text("utf-8"):
        found |= set(Config.model_fields)
    return found | (set(presets()) if "generated: presets" in page.read_text("utf-8") else set())


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_to_a_file_and_to_a_heading_of_it(page):
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        if re.match(r"https?:|mailto:", target):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file.resolve())):
            broken.append(target)
    assert broken == []


def test_every_page_is_in_one_of_the_five_folders_and_named_on_its_front_page():
    for folder in FOLDERS:
        index = DOCS / folder / "index.md"
        named = set(re.findall(r"\]\(([\w-]+\.md)[)#]", text_of(index)))
        assert named == {path.name for path in index.parent.glob("*.md")} - {"index.md"}, folder
    assert {path.parent.name for path in PAGES if path.parent != DOCS} == set(FOLDERS)
    assert [path.name for path in DOCS.glob("*.md")] == ["index.md"]


# -------------------------------------------------------------------------------- the site


class Links(HTMLParser):
    """The links in a page's own text; those of the sidebar, which has everything, do not count."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._inside = False

    def handle_starttag(self, tag, attributes):
        if tag == "article":
            self._inside = True
        elif tag == "a" and self._inside:
            self.found.append(dict(attributes).get("href") or "")

    def handle_endtag(self, tag):
        if tag == "article":
            self._inside = False


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, built as ``make docs`` does: a warning is an error, and every tutorial is run."""
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", DOCS, folder]
    answer = subprocess.run(build, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return folder


def linked(site: Path, page: str) -> set[str]:
    """The pages that a page links to, by name."""
    links = Links()
    links.feed((site / f"{page}.html").read_text("utf-8"))
    paths = (link.partition("#")[0] for link in links.found if not link.startswith(("http", "#")))
    files = ((site / page).parent / path for path in paths if path.endswith(".html"))
    return {file.resolve().relative_to(site.resolve()).with_suffix("").as_posix() for file in files}


@pytest.mark.slow
def test_the_site_has_every_page_and_what_a_newcomer_asks_in_two_clicks(site):
    """One test, so that the site is built once, however many processes run the tests."""
    assert {path.relative_to(DOCS).with_suffix("") for path in PAGES} <= {
        path.relative_to(site).with_suffix("") for path in site.rglob("*.html")
    }
    for page, facts in {
        "reference/config": ["greedy_clusters", "whole number, at least 1"],
        "reference/commands": ["fedclade watch", "--time-budget"],
        "reference/files": ["makespan_seconds"],
        "reference/presets": ["paper-femnist-small"],
        "reference/python": ["plot_timeline"],
        "tutorials/first-run": ["model 0.1 serves the devices (7, 8, 9, 10, 11, 12, 13)"],
        "tutorials/your-own-data": ["serves the machines (0, 1, 2)"],
    }.items():
        text = re.sub(r"<[^>]+>", "", (site / f"{page}.html").read_text("utf-8"))
        assert [fact for fact in facts if fact not in text] == [], page
    for page in site.rglob("*.html"):
        assert "generated:" not in page.read_text("utf-8").replace("_sources", ""), page
    first = linked(site, "index")
    near = first | {page for each in first for page in linked(site, each)}
    assert {question for question, answer in QUESTIONS.items() if answer not in near} == set()
