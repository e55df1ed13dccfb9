"""The documents: every page is in the index, links and named files exist, lines end at 120, the README is short."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkout import CHECKOUT

DOCS = CHECKOUT / "docs"
INDEX = DOCS / "README.md"
PAGES = sorted([*CHECKOUT.glob("*.md"), *DOCS.rglob("*.md")])
WIDTH = 120
LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")
WALK = re.compile(r"^## [^\n]*: (?P<stated>\d+) files\n\n(?P<text>.*?)\n\n", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"`((?:schemas|trajpilot_core|tasks|flows|deployments|tests|docs)/[\w./-]+)`")


def outside_code(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number, line) of every line outside code blocks."""
    fenced = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            yield number, line


def too_long(text: str) -> list[int]:
    """Return the numbers of the lines over the width: tables, code, and lines that are one word or link may be."""
    return [
        number
        for number, line in outside_code(text)
        if len(line) > WIDTH and not line.lstrip().startswith("|") and len(LINK.sub("", line).split()) > 1
    ]


def broken_links(page: Path, text: str) -> list[str]:
    """Return the relative links of a page to a missing file or heading."""
    broken = []
    for _, line in outside_code(text):
        for link in LINK.finditer(line):
            target, _, heading = link["target"].partition("#")
            if "://" in target:
                continue
            destination = (page.parent / target).resolve() if target else page
            if not destination.exists() or (heading and heading not in anchors(destination)):
                broken.append(link["target"])
    return broken


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page: explicit ids, and those that its Markdown headings get."""
    text = page.read_text()
    titles = [line.lstrip("#").strip() for _, line in outside_code(text) if line.startswith("#")]
    named = set(re.findall(r"\b(?:id|name)=\"([^\"]+)\"", text))
    return named | {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def unlisted(index: str) -> list[str]:
    """Return the pages below docs/ that the index does not link to."""
    linked = {(DOCS / link["target"].partition("#")[0]).resolve() for link in LINK.finditer(index)}
    return [str(page.relative_to(DOCS)) for page in PAGES if DOCS in page.parents and page not in {INDEX, *linked}]


def missing_files(text: str) -> list[str]:
    """Return the files that a page names and the checkout lacks; a module may lack its suffix."""
    return [name for name in FILE.findall(text) if not any((CHECKOUT / f"{name}{end}").exists() for end in ("", ".py"))]


def miscounted(text: str) -> list[str]:
    """Return what is wrong with the numbers of files that the headings of the walks state."""
    counts = [(int(walk["stated"]), len(set(FILE.findall(walk["text"])))) for walk in WALK.finditer(text)]
    return [f"the heading states {stated} files, but {named} are named" for stated, named in counts if stated != named]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_a_page_is_wrapped_and_its_links_and_files_exist(page: Path) -> None:
    text = page.read_text()
    assert too_long(text) == []
    assert broken_links(page, text) == []
    assert missing_files(text) == []


def test_the_readme_is_short_with_at_most_one_comment_and_a_decision_has_at_most_300_words() -> None:
    """But the table of what the paper leaves open, which has a row for each of its 52 numbers."""
    text = (CHECKOUT / "README.md").read_text()
    assert len(text) <= 6000
    assert text.count("<!--") <= 1
    counts = {page.name: len(page.read_text().split()) for page in (DOCS / "decisions").glob("*.md")}
    assert {name: n for name, n in counts.items() if n > 300} == {"paper-gaps.md": counts["paper-gaps.md"]}


def test_every_page_is_in_the_index_and_the_two_walks_of_the_architecture_are_counted() -> None:
    assert unlisted(INDEX.read_text()) == []
    text = (DOCS / "architecture.md").read_text()
    assert len(WALK.findall(text)) == 2
    assert miscounted(text) == []


def rooms_of_page(text: str) -> list[str]:
    """Return the rooms that the table of the architecture names, from bottom to top."""
    table = text.partition("| room | what is in it |")[2].partition("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines()[2:]]
    return [room for cell in cells for room in re.findall(r"`([a-z_]+)(?:\.py|/)`", cell)]


def test_the_rooms_of_the_architecture_are_those_of_the_contract() -> None:
    contracts = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract.get("containers") == ["trajpilot_core"])
    floor = {room: n for n, layer in enumerate(reversed(layers)) for room in layer.split(" | ")}

    def agrees(rooms: list[str]) -> bool:
        return sorted(rooms) == sorted(floor) and sorted(rooms, key=floor.__getitem__) == rooms

    rooms = rooms_of_page((DOCS / "architecture.md").read_text())
    assert agrees(rooms)
    for wrong in (["stores" if room == "store" else room for room in rooms], [*rooms[1:], rooms[0]], [*rooms, "more"]):
        assert not agrees(wrong)


def test_planted_faults_of_documents_are_seen() -> None:
    index, walks = INDEX.read_text(), (DOCS / "architecture.md").read_text()
    assert unlisted(index.replace("(decisions/methods.md)", "(decisions/method.md)")) == ["decisions/methods.md"]
    links = "See [there](nowhere.md), [here](data.md#no-such-heading), [good](data.md)."
    assert broken_links(INDEX, links) == ["nowhere.md", "data.md#no-such-heading"]
    assert missing_files("`schemas/labels.py` and `trajpilot_core/stages`") == ["schemas/labels.py"]
    assert too_long(f"short\n{'word ' * 30}\n| {'word ' * 30}|\n    {'code ' * 30}\n") == [2]
    assert len(miscounted(walks.replace("`trajpilot_core/store/parquet.py`", "the store"))) == 1
