"""How film strips are laid out: two beside each other, or one on a line, never more than a page of print holds."""

import pandas as pd
import pytest

from headroom.present.film_strips import ACROSS, LINES, _lines, _starts


def strip(role: str, frames: int) -> pd.DataFrame:
    return pd.DataFrame({"role": role, "frame": range(frames)})


def page(reference: int, run: int) -> list[pd.DataFrame]:
    return [strip("reference", reference), strip("run", run)]


@pytest.mark.parametrize(
    ("reference", "run", "starts"), [(2, 1, [0, 3]), (3, 3, [0, 3]), (4, 2, [0, 4]), (1, 4, [0, 2])]
)
def test_both_strips_of_a_page_stand_beside_each_other_where_they_fit(
    reference: int, run: int, starts: list[int]
) -> None:
    (line,) = _lines([page(reference, run)])
    assert _starts(line) == starts
    assert starts[1] >= max(reference, 2), "the strips and their titles do not overlap"
    assert starts[1] + max(run, 2) <= ACROSS


@pytest.mark.parametrize(("reference", "run"), [(3, 6), (1, 5), (6, 6), (4, 3)])
def test_a_page_whose_strips_do_not_fit_beside_each_other_takes_two_lines(reference: int, run: int) -> None:
    lines = _lines([page(reference, run)])
    assert [[len(part) for part in line] for line in lines] == [[reference], [run]]


def test_more_lines_than_a_page_of_print_holds_are_shortened_to_the_first_frame_and_the_last_two() -> None:
    lines = _lines([page(2, 1), page(3, 6), page(6, 4)])
    assert len(lines) == 3 <= LINES
    kept = [[part["frame"].tolist() for part in line] for line in lines]
    assert kept == [[[0, 1], [0]], [[0, 1, 2], [0, 4, 5]], [[0, 4, 5], [0, 2, 3]]]
