"""The page seeds of the repository and their overlap."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headroom.worlds import seeds
from headroom.worlds.base import Element, History, Observation


class FewPages:
    """A world whose page depends on the seed modulo a number."""

    def __init__(self, contents: int) -> None:
        self.contents = contents

    def observe(self, histories: Sequence[History]) -> list[Observation]:
        return [Observation("Click it.", (Element("button", str(h.seed % self.contents)),)) for h in histories]

    def close(self) -> None: ...


def test_the_listed_seeds_are_the_generated_ones() -> None:
    assert seeds.SEEDS_FILE.read_text() == seeds.generate()


def test_the_pools_are_disjoint_and_of_the_declared_size() -> None:
    pools = {name: seeds.pool(name) for name in seeds.POOLS}
    assert {name: len(own) for name, own in pools.items()} == seeds.POOLS
    everything = [seed for own in pools.values() for seed in own]
    assert len(set(everything)) == len(everything)
    assert all(0 <= seed < 2**31 for seed in everything)


def test_a_smaller_count_is_a_prefix_of_a_larger_one() -> None:
    assert seeds.pool("train", 50)[:20] == seeds.pool("train", 20)


@pytest.mark.parametrize(("name", "count"), [("training", 5), ("selection", 101), ("evaluation", 0), ("train", -1)])
def test_an_unknown_pool_or_an_impossible_count_is_refused(name: str, count: int) -> None:
    with pytest.raises(ValueError, match="seed pool"):
        seeds.pool(name, count)


def test_content_overlap_is_the_share_of_pages_met_in_training() -> None:
    pools = {"train": [0, 1, 2, 3], "evaluation": [104, 105, 110, 111]}
    # Modulo 8, train shows 0-3 and evaluation 0, 1, 6, 7.
    assert seeds.content_overlap(FewPages(8), ["x"], pools, batch=3) == {"x": {"evaluation": 0.5}}
    assert seeds.content_overlap(FewPages(10**6), ["x"], pools) == {"x": {"evaluation": 0.0}}
    assert seeds.content_overlap(FewPages(1), ["x"], pools) == {"x": {"evaluation": 1.0}}


@pytest.mark.parametrize(
    "pools", [{"evaluation": [1], "reading": [2]}, {"train": [1]}, {"train": [1], "evaluation": []}]
)
def test_content_overlap_needs_a_train_pool_and_another(pools: dict[str, list[int]]) -> None:
    with pytest.raises(ValueError, match="train"):
        seeds.content_overlap(FewPages(2), ["x"], pools)


def test_content_overlap_refuses_pools_that_share_a_seed() -> None:
    with pytest.raises(ValueError, match="share"):
        seeds.content_overlap(FewPages(2), ["x"], {"train": [1, 2], "evaluation": [2]})
