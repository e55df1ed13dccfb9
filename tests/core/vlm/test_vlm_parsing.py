"""What models write is read wherever it can be; only text without JSON fails."""

from trajpilot_core.vlm.parsing import parse_label, parse_sequence

RIGHT = ("cut the onion", "stir", "taste")
PLAIN = '{"sequence": ["cut the onion", "stir", "taste"]}'


def test_a_sequence_is_read_out_of_whatever_stands_around_it() -> None:
    for text in (
        PLAIN,
        f"```json\n{PLAIN}\n```",
        f"Here is the plan:\n\n{PLAIN}\nI hope that it helps.",
        f'<think>First {{"sequence": ["no"]}} perhaps.</think>\n{PLAIN}',
        f"</think>{PLAIN}",
        '{"sequence": [{"action_name": "cut the onion"}, {"action_name": "stir"}, {"action_name": "taste"}]}',
        '["cut the onion", "stir", "taste"]',
        '[{"action": "cut the onion"}, {"name": "stir"}, {"label": " taste "}]',
        f"A note {{not JSON}} and [brackets], then {PLAIN}",
    ):
        parsed = parse_sequence(text, 3)
        assert (parsed.labels, parsed.is_repaired, parsed.is_failed) == (RIGHT, False, False), text


def test_a_sequence_of_another_length_is_cut_or_filled_and_counted() -> None:
    for items, labels in ((2, RIGHT[:2]), (4, (*RIGHT, "taste")), (5, (*RIGHT, "taste", "taste"))):
        parsed = parse_sequence(PLAIN, items)
        assert (parsed.labels, parsed.is_repaired) == (labels, True)


def test_what_holds_no_whole_sequence_fails() -> None:
    objects = '{"sequence": [{"action_name": "cut"}, {"action_name": "st'
    plain = ("", "I cannot see the pictures.", '["cut", "stir"', '{"sequence": []}', "}}}{{{ [[[", "[" * 5000)
    for text in (*plain, PLAIN[:-8], objects, f"<think>{PLAIN}"):
        assert parse_sequence(text, 3).is_failed, text


def test_an_open_place_is_no_label_letters_of_all_scripts_are_and_a_label_may_be_named_twice() -> None:
    found = parse_sequence('{"sequence": ["a", -1, "-1", null, "切る 🥕", "a"]}', 6)
    assert found.labels == ("a", None, None, None, "切る 🥕", "a")
    parsed = parse_sequence('{"sequence": ["stir", "stir", "taste", "stir"]}', 4)
    assert (parsed.labels, parsed.is_repaired) == (("stir", "stir", "taste", "stir"), False)


def test_the_label_of_a_segment_is_its_first_line() -> None:
    for text in ("stir", '"stir"', "stir.", "<think>hm</think>\n\nstir\nI am sure.", "```\nstir\n```", "`stir`"):
        assert parse_label(text).labels == ("stir",)
    for text in ("", "\n \n", "<think>stir", '""'):
        assert parse_label(text).is_failed
