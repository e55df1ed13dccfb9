"""Inputs, documents and page that the tests of the report share."""

from collections.abc import Iterator

import pytest
from report_page import CFG, Reader, of_three_rows, real
from synthetic_corpus import corpus
from synthetic_results import Kept, Tables, built, report_inputs

from trajpilot_core.report import offline
from trajpilot_core.report.drawing.sheets import svg


@pytest.fixture(scope="session", autouse=True)
def drawn_once() -> Iterator[None]:
    """The pages of these tests show the same few charts: equal ones are drawn once."""
    drawn: dict[str, str] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            offline, "svg", lambda charts: drawn.get(repr(charts)) or drawn.setdefault(repr(charts), svg(charts))
        )
        yield


@pytest.fixture(scope="session")
def inputs() -> Tables:
    return report_inputs(corpus(n_train=6, n_test=12, n_segments=10), draws=100)


@pytest.fixture(scope="session")
def kept(inputs: Tables) -> Kept:
    return built(inputs, CFG)


@pytest.fixture(scope="session")
def page(kept: Kept) -> Reader:
    return Reader(kept.documents["report.html"].decode())


@pytest.fixture(scope="session")
def few(inputs: Tables) -> Tables:
    """The inputs with the metrics of three rows and no outcome, for pages of which a test reads a part."""
    return Tables({**of_three_rows(inputs).tables, "outcomes": inputs.tables["outcomes"].slice(0, 0)})


@pytest.fixture(scope="session")
def recorded(few: Tables) -> Kept:
    """A report of three rows, as if the takes were of the real corpus."""
    return built(real(few), CFG)
