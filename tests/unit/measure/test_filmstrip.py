"""Film strips: the page is picked by rule, the frames show what the record says."""

import io
import json

import pandas as pd
import pytest
from PIL import Image

from headroom.measure import filmstrip
from headroom.worlds.base import Action, Element, History


def table(policy, successes, task_set="mastered"):
    """{(task, seed): success} as an episode table."""
    return pd.DataFrame(
        [
            {
                "policy": policy,
                "task": task,
                "task_set": task_set,
                "seed": seed,
                "mode": "greedy",
                "sample": 0,
                "success": success,
                "ending": "done" if success else "horizon",
                "actions": ['click button "Ok"'] * 2,
                "outcomes": ["ok", "unknown target"],
            }
            for (task, seed), success in successes.items()
        ]
    )


REFERENCE = table("sft", {("b", 1): True, ("a", 9): True, ("a", 2): False, ("a", 3): True, ("z", 0): True})
RUN = table("rl", {("b", 1): False, ("a", 9): False, ("a", 2): True, ("a", 3): True})


def test_the_page_is_the_first_by_task_and_seed_whatever_the_order_of_the_rows():
    for frame in (RUN, RUN.iloc[::-1]):
        assert filmstrip.pick(REFERENCE, frame, "lost", "mastered") == ("a", 9)
        assert filmstrip.pick(REFERENCE, frame, "gained", "mastered") == ("a", 2)


@pytest.mark.parametrize(("regime", "page"), [("degrade", ("a", 9)), ("collapse", ("a", 9)), ("headroom", ("c", 5))])
def test_a_regimes_page_is_of_the_task_set_that_its_runs_train_on(regime, page, tmp_path):
    sides = {
        "sft": (REFERENCE, {("c", 4): True, ("c", 5): False, ("A", 0): True}),
        "rl": (RUN, {("c", 4): True, ("c", 5): True, ("A", 0): False}),
    }
    tables = {name: pd.concat([own, table(name, more, "headroom")]) for name, (own, more) in sides.items()}
    said = filmstrip.strip_of(Camera(), tables, "sft", "rl", regime, tmp_path)
    assert said["page"] == {"task": page[0], "seed": page[1]}
    assert f"of the {'headroom' if regime == 'headroom' else 'mastered'} set" in said["rule"]


def test_a_run_that_was_not_evaluated_on_its_task_set_has_no_page():
    assert filmstrip.pick(REFERENCE, RUN, "gained", "headroom") is None


def test_no_page_qualifies_when_the_policies_agree():
    assert filmstrip.pick(RUN, RUN, "lost", "mastered") is None
    with pytest.raises(ValueError, match="lost or gained"):
        filmstrip.pick(RUN, RUN, "found", "mastered")


def test_long_episodes_keep_their_start_and_their_end():
    assert filmstrip.kept_turns(3) == [0, 1, 2]
    assert filmstrip.kept_turns(11) == [0, 1, 2, 3, 9, 10]
    assert all(filmstrip.kept_turns(n)[-1] == n - 1 for n in range(1, 20))


def test_the_target_is_the_named_element_and_its_occurrence_decides():
    boxes = [(Element("button", "Ok", occurrence=n), 10.0 * n, 0.0, 5.0, 5.0) for n in (1, 2)]
    assert filmstrip.target_box(Action("click", "button", "Ok", 2), boxes) == (20.0, 0.0, 5.0, 5.0)
    assert filmstrip.target_box(Action("click", "button", "No"), boxes) is None
    assert filmstrip.target_box(Action("malformed", text="x"), boxes) is None


class Camera:
    def screenshot(self, history: History) -> bytes:
        out = io.BytesIO()
        Image.new("RGB", (160, 210), (200, 200, 200)).save(out, format="PNG")
        return out.getvalue()

    def boxes(self, history: History):
        return ((Element("button", "Ok"), 20.0, 30.0, 40.0, 10.0),)


def test_a_strip_shows_both_policies_and_names_what_it_shows(tmp_path):
    said = filmstrip.strip_of(Camera(), {"sft": REFERENCE, "rl": RUN}, "sft", "rl", "degrade", tmp_path)
    assert json.loads(json.dumps(said))["page"] == {"task": "a", "seed": 9}
    # the page ended the reference's episode; the run's was left where it stood
    for role, success, turns in (("reference", True, [0, 1]), ("run", False, [0, 1, 2])):
        strip = said["strips"][role]
        assert strip["success"] is success
        assert [frame["turn"] for frame in strip["frames"]] == turns
        verdicts = [frame["verdict"] for frame in strip["frames"]]
        assert verdicts == [""] * (len(turns) - 1) + ["solved" if success else "failed"]
        for frame in strip["frames"]:
            with Image.open(tmp_path / frame["file"]) as image:
                assert image.size == (480, 630 + filmstrip.CAPTION_HEIGHT)


def test_the_target_is_drawn_where_it_is_and_a_miss_looks_different():
    camera = Camera()
    box = (20.0, 30.0, 40.0, 10.0)
    pictures = {o: filmstrip.draw(camera.screenshot(None), "1. click", o, box) for o in ("ok", "disabled")}
    edge = (60 - 3, 100)  # left edge of the box, enlarged
    assert pictures["ok"].getpixel(edge) == filmstrip._TARGET
    assert pictures["disabled"].getpixel(edge) == filmstrip._MISS
    assert pictures["ok"].getpixel((300, 300)) == (200, 200, 200)


def test_long_captions_are_cut_to_two_lines_that_fit():
    from PIL import ImageFont

    font = ImageFont.load_default(size=20)
    lines = filmstrip.wrapped("fill textbox " + '"a very long name"' * 9, font, 300)
    assert len(lines) == 2
    assert lines[1].endswith("…")
    assert all(font.getlength(line) <= 320 for line in lines)
