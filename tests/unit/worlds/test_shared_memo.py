"""Observations remembered on disk: exact, watched, and never a reason to fail."""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.worlds.base import Action, Element, History, Observation, Outcome
from headroom.worlds.miniwob import shared
from headroom.worlds.miniwob.shared import SharedMemo, identity, key, pack, unpack

words = st.text(st.characters(codec=None), max_size=8)  # lone surrogates too: a page may hold anything
elements = st.builds(
    Element, words, words, words, st.lists(words, max_size=2).map(tuple), st.integers(0, 9),
    st.lists(words, max_size=3).map(tuple),
)  # fmt: skip
observations = st.builds(
    Observation, words, st.lists(elements, max_size=3).map(tuple), st.sampled_from(Outcome),
    st.floats(-1, 1, allow_nan=False), st.booleans(),
)  # fmt: skip
actions = st.builds(Action, words, words, words, st.integers(0, 9), words)
histories = st.builds(History, words, st.integers(0, 2**31), st.lists(actions, max_size=3).map(tuple))


def page(number: int) -> tuple[History, Observation]:
    history = History("click-test", number)
    return history, Observation(f"goal {number}", (Element("button", "Ok", states=("disabled",)),))


def pages(count: int) -> dict[History, Observation]:
    return dict(page(number) for number in range(count))


@given(observations)
def test_an_observation_survives_packing_exactly(observation: Observation) -> None:
    assert unpack(pack(observation)) == observation


@given(histories, histories)
def test_two_histories_have_one_key_only_if_they_are_equal(one: History, other: History) -> None:
    assert (key(one) == key(other)) == (one == other)


def test_what_one_job_saw_another_is_told_but_for_one_in_256(tmp_path: Path) -> None:
    seen = pages(2000)
    SharedMemo(tmp_path, "x").remember(seen)
    answers, to_check = SharedMemo(tmp_path, "x").known([*seen, History("click-test", 5000)])
    assert answers | to_check == seen
    assert all(key(history)[0] == 0 for history in to_check)
    assert 1 <= len(to_check) <= 30


def test_all_can_be_played_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = tmp_path / "browser"
    browser.touch()
    monkeypatch.setenv(shared.VARIABLE, str(tmp_path))
    monkeypatch.setenv(shared.CHECK, "1")
    memo = shared.open_shared(browser, tmp_path)
    assert memo is not None
    memo.remember(pages(300))
    assert memo.known(pages(300)) == ({}, pages(300))
    monkeypatch.setenv(shared.CHECK, "")
    memo = shared.open_shared(browser, tmp_path)
    assert memo is not None
    assert len(memo.known(pages(300))[0]) > 280


@pytest.mark.parametrize("said", ["many", "-3", "0", "257", "1.5", "\u0661", "9" * 5000])
def test_a_share_that_cannot_be_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    (tmp_path / "browser").touch()
    monkeypatch.setenv(shared.VARIABLE, str(tmp_path))
    monkeypatch.setenv(shared.CHECK, said)
    with pytest.raises(ValueError, match=r"^HEADROOM_PAGES_CHECK=.*: one answer in how many .* must be 1 to 256"):
        shared.open_shared(tmp_path / "browser", tmp_path)


def test_a_browser_that_is_not_there_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(shared.VARIABLE, str(tmp_path))
    with pytest.raises(ValueError, match="browser: cannot be found"):
        shared.open_shared(tmp_path / "browser", tmp_path)


GOOD = ["goal", [["button", "Ok", "", ["disabled"], 0, []]], "ok", 0.0, False]
FORGED = {
    "deep": b"[" * 100_000,
    "not UTF-8": b'["\xff"]',
    **{
        name: json.dumps([*GOOD[:place], value, *GOOD[place + 1 :]]).encode()
        for name, place, value in (
            ("utterance", 0, 5),
            ("states", 1, [["button", "Ok", "", "disabled", 0, []]]),
            ("options", 1, [["button", "Ok", "", [], 0, [1]]]),
            ("occurrence", 1, [["button", "Ok", "", [], "0", []]]),
            ("outcome", 2, ["ok"]),
            ("reward", 3, "1"),
            ("paid", 3, True),
            ("huge", 3, 10**400),
            ("done", 4, 1),
        )
    },
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_page_counts_as_not_remembered_and_is_replaced(tmp_path: Path, name: str) -> None:
    assert unpack(zlib.compress(json.dumps(GOOD).encode())).elements[0].states == ("disabled",)
    (history, seen), (other, kept) = page(2), page(3)
    SharedMemo(tmp_path, "x").remember({history: seen, other: kept})
    with sqlite3.connect(tmp_path / "x.sqlite") as connection:
        connection.execute("UPDATE pages SET page = ? WHERE key = ?", (zlib.compress(FORGED[name]), key(history)))
    connection.close()
    memo = SharedMemo(tmp_path, "x")
    assert memo.known([history, other])[0] == {other: kept}
    memo.remember({history: seen})
    assert memo.known([history, other])[0] == {history: seen, other: kept}


def test_a_path_that_no_file_can_have_costs_time_only(tmp_path: Path) -> None:
    memo = SharedMemo(tmp_path / "a\0b", "x")
    memo.remember(pages(1))
    assert memo.known(pages(1)) == ({}, {})
    memo = SharedMemo(tmp_path, "a\0b")
    assert memo.known(pages(1)) == ({}, {})


def test_a_wrong_memory_is_found_counted_and_no_longer_used(tmp_path: Path) -> None:
    seen = pages(2000)
    memo = SharedMemo(tmp_path, "x")
    memo.remember(seen)
    answers, doubted = memo.known(seen)
    memo.compare(doubted, seen)
    assert (memo.checked, memo.mismatched) == (len(doubted), 0)
    assert memo.known(seen) == (answers, doubted)
    first = next(iter(doubted))
    memo.compare({first: doubted[first]}, {first: Observation("another", ())})
    assert memo.mismatched == 1
    assert memo.known(seen) == ({}, {})


def test_a_failure_is_neither_kept_nor_a_contradiction(tmp_path: Path) -> None:
    history, seen = page(1)
    failed = Observation("", (), done=True, failure="the browser hung; 3 tries")
    memo = SharedMemo(tmp_path, "x")
    memo.remember({history: failed})
    assert memo.known([history]) == ({}, {})
    memo.compare({history: seen}, {history: failed})
    assert (memo.checked, memo.mismatched) == (0, 0)


def test_the_first_answer_stays(tmp_path: Path) -> None:
    history, seen = page(2)
    memo = SharedMemo(tmp_path, "x")
    memo.remember({history: seen})
    memo.remember({history: Observation("another", ())})
    assert memo.known([history])[0] == {history: seen}


def test_a_damaged_file_and_a_damaged_page_cost_time_only(tmp_path: Path) -> None:
    history, seen = page(2)
    (tmp_path / "x.sqlite").write_bytes(b"no database at all" * 500)
    memo = SharedMemo(tmp_path, "x")
    memo.remember({history: seen})
    assert memo.known([history]) == ({}, {})
    SharedMemo(tmp_path, "y").remember({history: seen})
    with sqlite3.connect(tmp_path / "y.sqlite") as connection:
        connection.execute("UPDATE pages SET page = x'00'")
    connection.close()
    assert SharedMemo(tmp_path, "y").known([history]) == ({}, {})


def test_a_folder_that_cannot_be_made_costs_time_only(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    memo = SharedMemo(tmp_path / "file" / "pages", "x")
    memo.remember(pages(1))
    assert memo.known(pages(1)) == ({}, {})
    memo.close()
    memo.close()


def test_jobs_write_side_by_side(tmp_path: Path) -> None:
    seen = pages(400)
    halves = [dict(list(seen.items())[:250]), dict(list(seen.items())[150:])]
    memos = [SharedMemo(tmp_path, "x") for _ in halves]
    for start in range(0, 250, 10):
        for memo, half in zip(memos, halves, strict=True):
            memo.remember(dict(list(half.items())[start : start + 10]))
    answers, doubted = SharedMemo(tmp_path, "x").known(seen)
    assert answers | doubted == seen


def test_another_browser_or_another_page_is_another_memory(tmp_path: Path) -> None:
    browser, folder = tmp_path / "browser", tmp_path / "html" / "miniwob"
    folder.mkdir(parents=True)
    browser.write_text("1")
    (folder / "a.html").write_text("a")
    before = identity(browser, folder)
    assert identity(browser, folder) == before
    (folder / "a.html").write_text("ab")
    changed = identity(browser, folder)
    os.utime(browser, ns=(1, 1))
    assert len({before, changed, identity(browser, folder)}) == 3


def test_without_the_variable_nothing_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = tmp_path / "browser"
    browser.touch()
    monkeypatch.setenv(shared.VARIABLE, "")
    assert shared.open_shared(browser, tmp_path) is None
    monkeypatch.setenv(shared.VARIABLE, str(tmp_path / "pages"))
    assert shared.open_shared(browser, tmp_path) is not None
    assert list((tmp_path / "pages").glob("*.sqlite"))
