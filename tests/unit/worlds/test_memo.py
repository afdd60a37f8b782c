"""The bounded memory of observations."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headroom.worlds.base import Action, Element, History, Observation
from headroom.worlds.memo import Memo, size_of


def page(text: str) -> Observation:
    return Observation("Do it.", (Element("text", text),))


def test_what_was_put_is_found_and_nothing_else() -> None:
    memo = Memo(100_000)
    memo.put(History("a", 1), page("one"))
    assert memo.get(History("a", 1)) == page("one")
    assert memo.get(History("a", 2)) is None
    assert memo.get(History("a", 1, (Action("click"),))) is None
    assert memo.hits == 1


def test_the_one_longest_unused_is_forgotten_first() -> None:
    memo = Memo(3 * size_of(page("x")))
    for seed in range(3):
        memo.put(History("a", seed), page("x"))
    memo.get(History("a", 0))
    memo.put(History("a", 3), page("x"))
    assert [seed for seed in range(4) if memo.get(History("a", seed))] == [0, 2, 3]


def test_a_failure_is_not_kept() -> None:
    memo = Memo(100_000)
    memo.put(History("a", 1), Observation("", (), done=True, failure="the browser failed"))
    assert len(memo) == 0


@given(st.lists(st.tuples(st.integers(0, 9), st.text(max_size=200)), max_size=40), st.integers(0, 4000))
def test_the_bound_holds_and_the_bytes_add_up(puts: list[tuple[int, str]], capacity: int) -> None:
    memo = Memo(capacity)
    last: dict[int, str] = {}
    for seed, text in puts:
        memo.put(History("a", seed), page(text))
        last[seed] = text
        assert memo.bytes <= capacity
    kept = [seed for seed in last if memo.get(History("a", seed)) is not None]
    assert len(kept) == len(memo)
    if capacity == 0:
        assert kept == []
