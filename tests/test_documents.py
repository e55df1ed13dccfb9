"""The documents: every page is in the index, links and named files exist, lines end at 120, the README is short."""

import re
import tomllib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
import yaml
from checkout import CHECKOUT

DOCS = CHECKOUT / "docs"
INDEX = DOCS / "README.md"
PAGES = sorted([*CHECKOUT.glob("*.md"), *DOCS.rglob("*.md")])
WIDTH = 120
LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")
WALK = re.compile(r"^## [^\n]*: (?P<stated>\d+) files\n\n(?P<text>.*?)\n\n", re.DOTALL | re.MULTILINE)
TWO_COMMANDS = re.compile(
    r"[^\s|&;(]\s+"
    r"(?:git clone|docker compose|trajpilot [a-z]+ --[a-z]+|prefect (?:deployment|server)|python|(?<!trajpilot )export)"
    r"(?:\s|$)"
)
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


def commands_run_together(text: str) -> list[str]:
    """Return the lines of code in which a second command follows the first without a separator."""
    code = {*range(1, text.count("\n") + 2)} - {number for number, _ in outside_code(text)}
    lines = [line.partition(" #")[0] for number, line in enumerate(text.splitlines(), start=1) if number in code]
    return [line for line in lines if TWO_COMMANDS.search(line)]


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
    assert commands_run_together(text) == []


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


def layers_enforced() -> list[set[str]]:
    """Return the layers of the contract in pyproject.toml, from bottom to top."""
    contracts = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (rooms,) = (contract["layers"] for contract in contracts if contract.get("containers") == ["trajpilot_core"])
    return [set(layer.split(" | ")) for layer in reversed(rooms)]


def layered(rooms: list[str]) -> list[set[str]]:
    """Cut a list of rooms into layers as large as those of the contract; what is left over is one more layer."""
    rest, layers = iter(rooms), []
    for layer in layers_enforced():
        layers.append(set(islice(rest, len(layer))))
    return [*layers, *([extra] if (extra := set(rest)) else [])]


def test_the_rooms_of_the_architecture_are_those_of_the_contract() -> None:
    rooms = rooms_of_page((DOCS / "architecture.md").read_text())
    assert layered(rooms) == layers_enforced()
    assert layered(["stores" if room == "store" else room for room in rooms]) != layers_enforced()
    assert layered([*rooms[1:], rooms[0]]) != layers_enforced()
    assert layered([*rooms, "more"]) != layers_enforced()


WRAPPED_LIKE_TEXT = [
    "    ego4d --benchmarks goalstep --metadata git clone\n    https://github.com/x/y",
    "    pg_restore --clean <\n    prefect-DATE.dump docker compose up -d",
    "    git clone https://github.com/x/scripts python\n    scripts/x.py",
    "    ends with 1 trajpilot verify --root runs/atomic",
]


def test_planted_faults_of_documents_are_seen() -> None:
    assert [text for text in WRAPPED_LIKE_TEXT if not commands_run_together(f"Text.\n\n{text}\n\nMore.\n")] == []
    right = "    cd x && python y\n    trajpilot gc --root R   # then trajpilot gc --root R --yes\n"
    assert commands_run_together(right) == []
    index, walks = INDEX.read_text(), (DOCS / "architecture.md").read_text()
    assert unlisted(index.replace("(decisions/methods.md)", "(decisions/method.md)")) == ["decisions/methods.md"]
    links = "See [there](nowhere.md), [here](data.md#no-such-heading), [good](data.md)."
    assert broken_links(INDEX, links) == ["nowhere.md", "data.md#no-such-heading"]
    assert missing_files("`schemas/labels.py` and `trajpilot_core/stages`") == ["schemas/labels.py"]
    assert too_long(f"short\n{'word ' * 30}\n| {'word ' * 30}|\n    {'code ' * 30}\n") == [2]
    assert len(miscounted(walks.replace("`trajpilot_core/store/parquet.py`", "the store"))) == 1


def test_hooks_are_those_of_the_checkout_and_download_nothing() -> None:
    (own,) = yaml.safe_load((CHECKOUT / ".pre-commit-config.yaml").read_text())["repos"]
    assert own["repo"] == "local"
    for hook in own["hooks"]:
        assert (hook["language"], hook["entry"].startswith(".venv/bin/")) == ("system", True)


def test_the_paper_is_cited_separately_from_this_software() -> None:
    cited = yaml.safe_load((CHECKOUT / "CITATION.cff").read_text())
    paper = cited["preferred-citation"]
    assert paper["url"].endswith("2605.20388")
    ours, theirs = ({author.get("family-names") for author in work["authors"]} for work in (cited, paper))
    assert not ours & theirs
    assert cited["version"] in (CHECKOUT / "pyproject.toml").read_text()
