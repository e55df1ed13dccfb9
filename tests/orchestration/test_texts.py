"""Texts of the data, made ready for what renders Markdown."""

import re

from hostile import TEXTS

from trajpilot_core.incoming import literal

SHOWN = {
    "ingest.min_overlap 0.5 -> 0.4": "ingest.min_overlap 0.5 -> 0.4",
    "recipe soak, nothing changed; config a1": "recipe soak, nothing changed; config a1",
    "/srv/runs/report.html": "/srv/runs/report.html",
    "![x](http://h/p.png)": r"\!\[x\](http://h/p.png)",
    "_a_ b_c": r"\_a\_ b_c",
    "# title": r"\# title",
    "1. first": "&#49;. first",
    "a\nb": "a b",
}


def test_nothing_of_a_hostile_text_is_left_that_markdown_reads() -> None:
    assert [text for text in TEXTS if re.search(r"(?<!\\)[<&\[`*]", literal(text).removeprefix("&#"))] == []
    assert [text for text in TEXTS if "\n" in literal(f"a\n\n{text}\r\n# b")] == []


def test_plain_texts_stay_as_they_are_and_marks_are_escaped() -> None:
    assert {text: literal(text) for text in SHOWN} == SHOWN
