import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.seeds import derive, generator

PLAIN = st.one_of(st.text(), st.integers(), st.booleans(), st.none(), st.binary(), st.floats(allow_nan=False))


def test_a_seed_is_the_same_on_every_machine_and_in_every_process():
    assert derive("rollout", 7, "click-test", 123, 0, 2) == 6852343371372717186


@given(st.lists(PLAIN))
def test_a_seed_has_63_bits_and_repeats(parts):
    assert 0 <= derive(*parts) < 2**63
    assert derive(*parts) == derive(*parts)


@given(st.lists(PLAIN), st.lists(PLAIN))
def test_different_parts_give_different_seeds(left, right):
    assert (derive(*left) == derive(*right)) == ([repr(p) for p in left] == [repr(p) for p in right])


def test_the_border_between_parts_and_their_type_matter():
    assert len({derive("a", "bc"), derive("ab", "c"), derive("abc"), derive(("a", "bc"))}) == 4
    assert len({derive(1), derive("1"), derive(1.0), derive(True)}) == 4


@pytest.mark.parametrize("part", [np.int64(1), [1], {"a": 1}, object(), (1, [2])])
def test_a_part_without_a_stable_text_is_refused(part):
    with pytest.raises(TypeError, match="plain"):
        derive("x", part)


def test_a_generator_repeats_and_leaves_the_global_state_alone():
    before = np.random.get_state()[1].copy()
    assert generator("a", 1).integers(2**62) == generator("a", 1).integers(2**62)
    assert generator("a", 1).integers(2**62) != generator("a", 2).integers(2**62)
    assert (np.random.get_state()[1] == before).all()
