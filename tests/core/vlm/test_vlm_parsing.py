"""What models write is read wherever it can be; only text without JSON fails."""

import pytest

from trajpilot_core.vlm.parsing import parse_label, parse_sequence

RIGHT = ("cut the onion", "stir", "taste")
PLAIN = '{"sequence": ["cut the onion", "stir", "taste"]}'


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        f"```json\n{PLAIN}\n```",
        f"Here is the plan:\n\n{PLAIN}\nI hope that it helps.",
        f'<think>First {{"sequence": ["no"]}} perhaps.</think>\n{PLAIN}',
        f"</think>{PLAIN}",
        '{"sequence": [{"action_name": "cut the onion"}, {"action_name": "stir"}, {"action_name": "taste"}]}',
        '["cut the onion", "stir", "taste"]',
        '[{"action": "cut the onion"}, {"name": "stir"}, {"label": " taste "}]',
        f"A note {{not JSON}} and [brackets], then {PLAIN}",
    ],
)
def test_a_sequence_is_read_out_of_whatever_stands_around_it(text: str) -> None:
    parsed = parse_sequence(text, 3)
    assert (parsed.labels, parsed.is_repaired, parsed.is_failed) == (RIGHT, False, False)


@pytest.mark.parametrize(("items", "labels"), [(2, RIGHT[:2]), (4, (*RIGHT, "taste")), (5, (*RIGHT, "taste", "taste"))])
def test_a_sequence_of_another_length_is_cut_or_filled_and_counted(items: int, labels: tuple[str, ...]) -> None:
    parsed = parse_sequence(PLAIN, items)
    assert (parsed.labels, parsed.is_repaired) == (labels, True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I cannot see the pictures.",
        PLAIN[:-8],
        '{"sequence": [{"action_name": "cut"}, {"action_name": "st',
        '["cut", "stir"',
        '{"sequence": []}',
        "<think>" + PLAIN,
        "}}}{{{ [[[",
        "[" * 5000,
    ],
)
def test_what_holds_no_whole_sequence_fails(text: str) -> None:
    assert parse_sequence(text, 3).is_failed


def test_an_open_place_is_no_label_and_letters_of_all_scripts_are() -> None:
    assert parse_sequence('{"sequence": ["a", -1, "-1", null, "切る 🥕", "a"]}', 6).labels == (
        "a",
        None,
        None,
        None,
        "切る 🥕",
        "a",
    )


def test_a_label_may_be_named_twice() -> None:
    parsed = parse_sequence('{"sequence": ["stir", "stir", "taste", "stir"]}', 4)
    assert (parsed.labels, parsed.is_repaired) == (("stir", "stir", "taste", "stir"), False)


def test_the_label_of_a_segment_is_its_first_line() -> None:
    for text in ("stir", '"stir"', "stir.", "<think>hm</think>\n\nstir\nI am sure.", "```\nstir\n```", "`stir`"):
        assert parse_label(text).labels == ("stir",)
    for text in ("", "\n \n", "<think>stir", '""'):
        assert parse_label(text).is_failed
