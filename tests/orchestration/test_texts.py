"""Texts of the data, made ready for what renders Markdown."""

import re

import pytest
from hostile import TEXTS

from trajpilot_core.markdown_escape import literal


@pytest.mark.parametrize("text", TEXTS)
def test_nothing_of_a_hostile_text_is_left_that_markdown_reads(text: str) -> None:
    assert re.search(r"(?<!\\)[<&\[`*]", literal(text).removeprefix("&#")) is None
    assert "\n" not in literal(f"a\n\n{text}\r\n# b")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ingest.min_overlap 0.5 -> 0.4", "ingest.min_overlap 0.5 -> 0.4"),
        ("recipe soak, nothing changed; config a1", "recipe soak, nothing changed; config a1"),
        ("/srv/runs/report.html", "/srv/runs/report.html"),
        ("![x](http://h/p.png)", r"\!\[x\](http://h/p.png)"),
        ("_a_ b_c", r"\_a\_ b_c"),
        ("# title", r"\# title"),
        ("1. first", "&#49;. first"),
        ("a\nb", "a b"),
    ],
)
def test_plain_texts_stay_as_they_are_and_marks_are_escaped(text: str, shown: str) -> None:
    assert literal(text) == shown
