"""Texts of the data stay text; the page runs no script and asks for nothing."""

import pyarrow as pa
from hostile import TEXTS
from report_page import CFG, Reader, of_three_rows, replaced
from synthetic_corpus import corpus
from synthetic_results import Kept, built, report_inputs

from schemas.arrow import table_of
from schemas.results import Judgement


def test_the_page_asks_for_nothing_and_runs_no_script(kept: Kept, page: Reader) -> None:
    for tag, attributes in page.tags:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in ("src", "href", "srcset", "action", "data"):
                assert (value or "").startswith(("#", "data:image/jpeg")), (tag, value)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids)), "marks of two pictures"
    assert not {"link", "iframe", "object", "embed", "form", "base"} & {tag for tag, _ in page.tags}
    assert "url(" not in kept.documents["report.html"].decode().lower()
    policy = next(
        a["content"] for t, a in page.tags if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "script" not in policy
    assert not {"script", "button", "input", "label"} & {tag for tag, _ in page.tags}


XSS = (*TEXTS, "{{ config }}", "\u2028alert(20)", "<scr\x00ipt>alert(21)", "<base href=//x/25>")


def test_hostile_labels_and_names_stay_text(page: Reader) -> None:
    """30 strings as labels, take names, scenarios, reject details and candidates' labels."""
    assert len(XSS) >= 30
    tables = corpus(n_train=6, n_test=12, n_segments=10, texts=XSS)
    names = [XSS[i % len(XSS)] for i in range(tables["takes"].num_rows)]
    tables["takes"] = replaced(replaced(tables["takes"], "name", names), "scenario", names)
    inputs = report_inputs(tables, draws=100)
    for name in ("ingest.rejects", "trajectories.rejects"):
        held = inputs.tables[name]
        inputs.tables[name] = replaced(held, "detail", [XSS[i] for i in range(held.num_rows)])
    checks = [Judgement(check=f"demo: {text}", verdict="fails", detail=text) for text in XSS]
    inputs.tables["judgements"] = pa.concat_tables([inputs.tables["judgements"], table_of(Judgement, checks)])
    documents = built(of_three_rows(inputs), CFG.replace(examples=60)).documents
    hostile = Reader(documents["report.html"].decode())
    assert {tag for tag, _ in hostile.tags} == {tag for tag, _ in page.tags}
    names, plain = ({(tag, name) for tag, own in one.tags for name in own} for one in (hostile, page))
    assert not names - plain
    text = "".join(hostile.text)
    assert sum(label in text for label in XSS) >= len(XSS) - 1  # the parser drops the NUL of one
    assert "{{7*7}}" in text
    assert b"\\input" not in documents["metrics.tex"].split(b"\n", 1)[1]
    assert b"\\write" not in documents["metrics.tex"]
