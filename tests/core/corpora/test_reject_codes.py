"""Every reject code has a fixture that plants its fault, and every code that a fixture plants exists."""

import re
from pathlib import Path

from schemas.rejects import RejectCode, reject
from trajpilot_core.simworld.faults import TAKE_FAULTS

TESTS = Path(__file__).parents[2]
CODES = {code.value for code in RejectCode}


def planted() -> set[str]:
    """Codes that tests name as an expected result, and codes of the simulated world's broken takes."""
    found = {code.value for codes in TAKE_FAULTS.values() for code in codes}
    for path in TESTS.rglob("*.py"):
        if path.name != Path(__file__).name:
            words = set(re.findall(r"(?:RejectCode|Code)\.([A-Z_]+)|\"([A-Z]+(?:_[A-Z]+)*)\"", path.read_text()))
            found |= {a or b for a, b in words}
    return found & CODES


def test_codes_with_fixtures_are_the_codes_of_the_enum() -> None:
    assert planted() == CODES


def test_every_code_has_a_meaning_and_says_what_to_do() -> None:
    assert all(code.meaning and code.action for code in RejectCode)
    assert all(code.severity == "drop" for code in RejectCode if code.by_choice)


def test_only_what_is_dropped_costs_units() -> None:
    rows = [reject("ingest", code, "egoexo4d:x", "detail", n_units=3) for code in RejectCode]
    assert all(row.n_units == (3 if row.severity == "drop" else 0) for row in rows)
