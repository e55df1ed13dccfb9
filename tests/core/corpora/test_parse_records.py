"""A list that is read record by record gives the records, and the errors, of the file read as a whole."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.base import canonical_json, canonical_object
from trajpilot_core.corpora.formats.strict import FileFaultError, Repeated, parse, parse_records

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
BROKEN = [b"", b"[", b"[1,2", b"[1,]", b"[1 2]", b"[1] x", b"[NaN]", b"[,1]", b"[1,2],", b"\xef\xbb\xbf[]", b"[\xff]"]


@settings(derandomize=True, deadline=None, max_examples=60)
@given(records=st.lists(VALUES, max_size=4), indent=st.sampled_from([None, 0, 2]))
def test_the_records_are_those_of_the_whole_file(records: list[object], indent: int | None) -> None:
    content = json.dumps(records, indent=indent).encode()
    assert list(parse_records(content, "takes.json")) == parse(content, "takes.json", refuse_nan=True) == records


def test_a_broken_file_is_refused_in_the_same_words() -> None:
    for content in BROKEN:
        with pytest.raises(FileFaultError) as whole:
            parse(content, "takes.json", refuse_nan=True)
        with pytest.raises(FileFaultError) as apart:
            list(parse_records(content, "takes.json"))
        assert str(apart.value) == str(whole.value), content


def test_a_repeated_key_is_marked_and_no_list_has_no_records() -> None:
    (marked,) = parse_records(b'[{"a": 1, "a": 2}]', "takes.json")
    assert isinstance(marked, Repeated)
    assert [*parse_records(b"{}", "takes.json"), *parse_records(b"[]", "takes.json")] == []


@settings(derandomize=True, deadline=None, max_examples=60)
@given(values=st.dictionaries(st.text(), VALUES, max_size=4))
def test_an_object_made_of_the_texts_of_its_values_is_canonical(values: dict[str, object]) -> None:
    texts = {name: canonical_json(value) for name, value in values.items()}  # type: ignore[arg-type]
    assert canonical_object(texts) == canonical_json(values)  # type: ignore[arg-type]
