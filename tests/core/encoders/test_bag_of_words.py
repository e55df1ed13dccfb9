"""The demo's text encoder: a projection of bags of words."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from trajpilot_core.encoders.text.bag_of_words import BagOfWords


@settings(derandomize=True, deadline=None, max_examples=25)
@given(st.lists(st.text(min_size=1, max_size=40), min_size=1, max_size=5), st.integers(8, 200))
def test_bag_of_words_gives_unit_vectors_for_any_text(texts: list[str], width: int) -> None:
    vectors = BagOfWords(width).embed(texts)
    assert vectors.shape == (len(texts), width)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_bag_of_words_knows_shared_words_and_their_order() -> None:
    a, b, c, d = BagOfWords(512).embed(["cut the carrot", "cut the onion", "open a fridge", "carrot the cut"])
    assert a @ b > 0.3 > a @ c
    assert a @ b < a @ d < 0.99


def test_bag_of_words_is_the_same_everywhere() -> None:
    """Golden: renew by printing the same expression; a change means every demo number changes (raise VERSION)."""
    vector = BagOfWords(8).embed(["pour water into cup"])[0]
    assert np.round(vector.astype(float), 4).tolist() == GOLDEN


GOLDEN = [-0.0707, -0.2121, 0.0707, -0.6364, 0.6364, -0.0707, 0.0707, 0.3536]
