"""What the rules look up."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from headroom.config.workflow import any_of

NAMES = st.text("abc-01.+", min_size=1, max_size=5)


@given(st.sets(NAMES, max_size=12), NAMES)
def test_the_expression_of_some_names_matches_these_and_no_other(names: set[str], other: str) -> None:
    expression = re.compile(any_of(names))
    assert all(expression.fullmatch(name) for name in names)
    assert bool(expression.fullmatch(other)) == (other in names)


@given(st.sets(NAMES, min_size=1, max_size=12), st.data())
def test_it_finds_a_name_inside_a_path(names: set[str], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(names)))
    found = re.fullmatch(f"results/(?P<run>{any_of(names)})/run.json", f"results/{name}/run.json")
    assert found is not None
    assert found["run"] == name
