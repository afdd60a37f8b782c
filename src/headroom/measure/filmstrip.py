"""Film strips: what a policy did on one page, frame by frame, beside what its reference did there.

The episodes are picked by rule. Of the pages of the task set that a regime trains on, sorted by (task, page seed), and
the first run of the regime:

* degrade and collapse: the first page of the mastered set that the reference solved and the run failed;
* headroom: the first page of the headroom set that the reference failed and the run solved.

A frame shows the page before an action, the target of the action in a box and the action below. An episode that ran
out of turns has one frame more, the page where it was left; one that the page ended has not, for its last page is the
harness's curtain. The last frame says how it ended. Long episodes keep their first frames and the last two. The text
of a replay is exact, its pixels are not promised to repeat.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import pandas as pd
import typer

from headroom.agent.dialect import WEB_PAGES
from headroom.agent.episode import Ending
from headroom.config.jobs import FilmstripJob, load_job
from headroom.files import atomic, write_json
from headroom.measure import episodes
from headroom.worlds.base import Action, Element, History

if TYPE_CHECKING:
    from PIL import Image, ImageDraw

REGIMES = {"degrade": ("lost", "mastered"), "collapse": ("lost", "mastered"), "headroom": ("gained", "headroom")}
"""Regime -> what became of its page, and the task set that its runs train on."""
FRAMES = 6
SCALE = 3
CAPTION_HEIGHT = 62
_INK, _PAPER, _TARGET, _MISS = (20, 20, 20), (255, 255, 255), (213, 94, 0), (0, 114, 178)  # Okabe-Ito

Box = tuple[float, float, float, float]


class Camera(Protocol):
    """What a film strip needs of a world."""

    def screenshot(self, history: History) -> bytes:
        """A PNG of the page at a point of an episode."""
        ...

    def boxes(self, history: History) -> tuple[tuple[Element, float, float, float, float], ...]:
        """The elements there with (left, top, width, height) in pixels of the screenshot."""
        ...


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame: ``turn`` counts from 0; ``action`` is empty where the episode was left; ``box`` is the target's, if it
    is there; ``verdict`` is "solved" or "failed" on the last frame, else empty."""

    file: str
    turn: int
    action: str
    outcome: str
    box: Box | None
    verdict: str


def pick(reference: pd.DataFrame, policy: pd.DataFrame, what: str, task_set: str) -> tuple[str, int] | None:
    """The page (task, seed) of a strip by the module's rule; None if no page qualifies.

    Greedy episodes are paired; ``what`` is lost or gained, ``task_set`` the set that the page is taken from.

    Raises:
        ValueError: ``what`` is neither lost nor gained, or the two were not played on the same pages.
    """
    if what not in ("lost", "gained"):
        raise ValueError(f"a page is lost or gained, not {what!r}")
    tables = [table[(table["mode"] == "greedy") & (table["task_set"] == task_set)] for table in (reference, policy)]
    # A run may have been evaluated on fewer tasks than its reference.
    tables[0] = tables[0][tables[0]["task"].isin(set(tables[1]["task"]))]
    pairs, _ = episodes.pair(*tables)
    hit = pairs[pairs["reference"] == (what == "lost")]
    hit = hit[hit["policy"] == (what == "gained")].sort_values(["task", "seed"])
    return None if hit.empty else (str(hit["task"].iloc[0]), int(hit["seed"].iloc[0]))


def film(
    world: Camera,
    task: str,
    seed: int,
    actions: Sequence[str],
    outcomes: Sequence[str],
    *,
    ended: bool,
    success: bool,
    folder: Path,
) -> list[Frame]:
    """Replay an episode and write its frames, ``00.png`` and so on, into ``folder``; ``ended`` by the page itself."""
    parsed = [WEB_PAGES.parse(text) for text in actions]
    turns = kept_turns(len(actions) if ended else len(actions) + 1)
    frames = []
    for turn in turns:
        history = History(task, seed, tuple(parsed[:turn]))
        left = turn == len(actions)
        text, outcome = ("", "") if left else (actions[turn], outcomes[turn])
        box = None if left else target_box(parsed[turn], world.boxes(history))
        verdict = ("solved" if success else "failed") if turn == turns[-1] else ""
        caption = "out of turns" if left else f"{turn + 1}. {text}"
        picture = draw(world.screenshot(history), caption, outcome, box, verdict)
        name = f"{turn:02d}.png"
        with atomic(folder / name) as part:
            picture.save(part, format="PNG")
        frames.append(Frame(f"{folder.name}/{name}", turn, text, outcome, box, verdict))
    return frames


def kept_turns(points: int) -> list[int]:
    """Which of ``points`` points are shown: all if they are few, else the first ones and the last two."""
    every = list(range(points))
    return every if points <= FRAMES else every[: FRAMES - 2] + every[-2:]


def target_box(action: Action, boxes: Sequence[tuple[Element, float, float, float, float]]) -> Box | None:
    """The box of the element that an action names, None if the page has none."""
    for element, *box in boxes:
        same = (element.role, element.name) == (action.role, action.name)
        if same and (action.occurrence in (0, element.occurrence)):
            left, top, width, height = box
            return (left, top, width, height)
    return None


def draw(png: bytes, text: str, outcome: str, box: Box | None, verdict: str = "") -> Image.Image:
    """A screenshot enlarged, with the target's box, a caption and a verdict; a miss is blue instead of orange."""
    from PIL import Image, ImageDraw, ImageFont

    with Image.open(io.BytesIO(png)) as image:
        page = image.convert("RGB")
    width, height = page.width * SCALE, page.height * SCALE
    picture = Image.new("RGB", (width, height + CAPTION_HEIGHT), _PAPER)
    picture.paste(page.resize((width, height), Image.Resampling.LANCZOS), (0, 0))
    pen = ImageDraw.Draw(picture)
    arrived = outcome in ("", "ok")
    colour = _TARGET if arrived else _MISS
    if box is not None:
        left, top, wide, high = (value * SCALE for value in box)
        corners = (left - 4, top - 4, left + wide + 4, top + high + 4)
        pen.rectangle(corners, outline=colour, width=5)
    pen.line((0, height, width, height), fill=_INK, width=2)
    font = ImageFont.load_default(size=20)
    lines = [*wrapped(text, font, width - 16)[:2]]
    for number, line in enumerate(lines):
        pen.text((8, height + 6 + 26 * number), line, fill=_INK, font=font)
    _badge(pen, "" if arrived else outcome, _MISS, width, height, font)
    _badge(pen, verdict, _INK, width, height + CAPTION_HEIGHT, font)
    return picture


def _badge(
    pen: ImageDraw.ImageDraw, text: str, colour: tuple[int, int, int], right: int, bottom: int, font: Any
) -> None:
    """A label in a corner; nothing for an empty text."""
    if text:
        left = right - pen.textlength(text, font) - 12
        pen.rectangle((left, bottom - 28, right, bottom), fill=colour)
        pen.text((left + 6, bottom - 27), text, fill=_PAPER, font=font)


def wrapped(text: str, font: Any, width: float) -> list[str]:
    """Lines that fit ``width`` pixels, broken anywhere if a word does not fit; the second ends in an ellipsis."""
    lines = [""]
    for character in text:
        if font.getlength(lines[-1] + character) > width:
            lines.append("")
        lines[-1] += character
    if len(lines) > 2:
        lines = [lines[0], lines[1][:-1] + "…"]
    return lines


def strip_of(
    world: Camera,
    tables: Mapping[str, pd.DataFrame],
    reference: str,
    policy: str,
    regime: str,
    output: Path,
) -> dict[str, object]:
    """Film one regime's page, by the reference and by the run: what ``filmstrip.json`` says of it."""
    what, task_set = REGIMES[regime]
    page = pick(tables[reference], tables[policy], what, task_set)
    rule = f"first page of the {task_set} set that was {what}, by (task, page seed)"
    said: dict[str, object] = {"regime": regime, "policy": policy, "rule": rule}
    if page is None:
        return said | {"page": None, "strips": {}}
    strips = {}
    for role, name in (("reference", reference), ("run", policy)):
        table = tables[name]
        rows = table[(table["mode"] == "greedy") & (table["task"] == page[0]) & (table["seed"] == page[1])]
        episode = rows.iloc[0]
        folder = output / f"{regime}-{role}"
        frames = film(
            world,
            *page,
            [str(action) for action in episode["actions"]],
            [str(outcome) for outcome in episode["outcomes"]],
            ended=episode["ending"] == str(Ending.DONE),
            success=bool(episode["success"]),
            folder=folder,
        )
        strips[role] = {
            "policy": name,
            "success": bool(episode["success"]),
            "turns": len(episode["actions"]),
            "frames": [asdict(frame) for frame in frames],
        }
    return said | {"page": {"task": page[0], "seed": page[1]}, "strips": strips}


def main(
    config: Annotated[Path, typer.Option(help="Resolved FilmstripJob.")],
    reference: Annotated[Path, typer.Option(help="Evaluation directory of the supervised policy.")],
    output: Annotated[Path, typer.Option(help="Result directory.")],
    policies: Annotated[list[Path] | None, typer.Argument(help="Evaluation directories of the runs to show.")] = None,
) -> None:
    """Write the frames and filmstrip.json."""
    from headroom.provenance import record
    from headroom.worlds.miniwob.world import MiniWob

    settings = load_job(config, FilmstripJob)
    with record.job(
        stage="measure.filmstrip",
        output=output,
        inputs={"reference": reference, "policies": policies or []},
        config=config,
    ) as job:
        supervised = episodes.read(reference)
        tables = {str(supervised["policy"].iloc[0]): supervised}
        name = next(iter(tables))
        for folder in policies or []:
            table = episodes.read(folder)
            tables[str(table["policy"].iloc[0])] = table
        shown = {regime: runs[0] for regime, runs in settings.regimes.items() if regime in REGIMES and runs}
        if missing := sorted(set(shown.values()) - set(tables)):
            raise SystemExit(f"no evaluation of {', '.join(missing)} among the policies; name its directory, too")
        with MiniWob(settings.world) as world:
            strips = [strip_of(world, tables, name, run, regime, job.output) for regime, run in sorted(shown.items())]
        write_json(job.output / "filmstrip.json", {"strips": strips})
        job.notes["pages"] = [strip["page"] for strip in strips]
        job.ending = "finished"


if __name__ == "__main__":
    typer.run(main)
