"""The released games: which one a seed stands for, and what happens when a file is not the listed one."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from headroom.config.worlds import AlfWorldSettings
from headroom.worlds.alfworld import released, scenes
from headroom.worlds.alfworld.oracles import oracle
from headroom.worlds.alfworld.released import Released
from headroom.worlds.alfworld.scenes import TASKS
from headroom.worlds.alfworld.world import AlfWorld
from headroom.worlds.base import History
from headroom.worlds.seeds import pool

pytestmark = pytest.mark.usefixtures("engine_here")

TASK, OTHER = TASKS[0], TASKS[3]
COUNTS = {"train": 3, "valid_seen": 2, "valid_unseen": 2}


def write_game(folder: Path, split: str, task: str, number: int, **changes: object) -> Path:
    made = scenes.scene(task, number, 6, 6)
    trial = folder / "json_2.1.1" / split / f"{task}-{made.target}-None-{made.parent}-{number}" / f"trial_T{number}"
    trial.mkdir(parents=True)
    file = trial / "game.tw-pddl"
    file.write_text(json.dumps(scenes.game(task, number, 6, 6).as_json() | changes))
    (trial / "traj_data.json").write_text(json.dumps({"task_type": task}))
    return file


@pytest.fixture
def data(tmp_path: Path, engine_here: None) -> Path:
    """A folder as ``alfworld-download`` leaves it, with generated games in place of the released ones."""
    number = 0
    for split, count in COUNTS.items():
        for task in (TASK, OTHER):
            for _ in range(count):
                write_game(tmp_path, split, task, number := number + 1)
    write_game(tmp_path, "train", TASK, 900, solvable=False)
    trial = write_game(tmp_path, "train", TASK, 901).parent
    (trial / "traj_data.json").write_text('{"task_type": "pick_and_place_with_movable_recep"}')
    moved = write_game(tmp_path, "valid_seen", TASK, 902).parents[1]
    moved.rename(moved.with_name(f"{TASK}-BreadSliced-None-Fridge-902"))
    return tmp_path


def opened(data: Path | None) -> AlfWorld:
    return AlfWorld(AlfWorldSettings(games="released", data=None if data is None else str(data)))


@pytest.mark.parametrize("with_listing", [False, True])
def test_a_pool_stands_for_a_split_and_a_place_in_it_for_a_game(data: Path, with_listing: bool) -> None:
    if with_listing:
        released.main([str(data)])
    games = Released(str(data))
    for name, split in {"train": "train", "evaluation": "valid_unseen", "selection": "valid_seen"}.items():
        paths = games.paths(split, TASK)
        assert len(paths) == COUNTS[split]
        assert list(paths) == sorted(paths)
        assert all(f"/{split}/{TASK}-" in path for path in paths)
        assert [games.path(TASK, seed) for seed in pool(name, 5)] == [paths[place % len(paths)] for place in range(5)]


def test_a_released_game_is_played_as_its_file_says(data: Path) -> None:
    with opened(data) as world:
        seed = pool("evaluation")[1]
        start = History(OTHER, seed)
        first, plan = world.observe([start])[0], world.plan(start)
        text = (data / Released(str(data)).path(OTHER, seed)).read_text()
        assert first.utterance in text
        assert plan is not None
        assert world.observe([History(OTHER, seed, plan)])[0].done


def test_the_searching_oracle_speaks_the_words_of_the_release(data: Path) -> None:
    for file in data.glob("json_2.1.1/valid_seen/*/*/game.tw-pddl"):
        text = file.read_text().replace("move {o} to {r}", "put {o} in/on {r}").replace("You move the", "You put the")
        file.write_text(text.replace(" to the {r.name}.", " in/on the {r.name}."))
    with opened(data) as world:
        for task in (TASK, OTHER):
            history, actions = History(task, pool("selection")[0]), []
            observations = world.observe([history])
            while (action := oracle(task)(observations, actions)) is not None:
                actions.append(action)
                observations += world.observe([History(task, history.seed, tuple(actions))])
            assert observations[-1].done
            assert actions[-1].text.startswith("put ")


def test_the_listing_is_read_by_sha256sum_and_leaves_out_what_alfworld_leaves_out(data: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headroom.worlds.alfworld.released", str(data)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "games.sha256: 14 games\n"
    rows = dict(reversed(line.split("  ")) for line in (data / "games.sha256").read_text().splitlines())
    assert len(rows) == 2 * sum(COUNTS.values())
    for path, digest in rows.items():
        assert hashlib.sha256((data / path).read_bytes()).hexdigest() == digest
    assert not any(text in path for path in rows for text in ("-900/", "-901/", "-902/"))


FAULTS = {
    "a folder": lambda file: (file.unlink(), file.mkdir()),
    "deep": lambda file: file.write_bytes(b"[" * 100_000),
    "not UTF-8": lambda file: file.write_bytes(b"\xff\xfe\xfd"),
    "cut": lambda file: file.write_bytes(file.read_bytes()[:100]),
    "no problem": lambda file: file.write_text(json.dumps(json.loads(file.read_bytes()) | {"pddl_problem": "(define"})),
    "no grammar": lambda file: file.write_text(json.dumps(json.loads(file.read_bytes()) | {"grammar": None})),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_game_that_the_engine_cannot_read_is_named_and_left_out_of_the_listing_only_where_asked(
    data: Path, capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    file = data / Released(str(data)).path(TASK, pool("train")[0])
    FAULTS[fault](file)
    with pytest.raises(SystemExit, match=r"1 games cannot be read; nothing was written: .* --leave-out$"):
        released.main([str(data)])
    assert not (data / "games.sha256").exists()
    (line,) = [line for line in capsys.readouterr().err.splitlines() if str(file) in line]
    assert "cannot be read" in line or "no game that ALFWorld's engine reads" in line
    released.main([str(data), "--leave-out"])
    assert capsys.readouterr().out == "games.sha256: 13 games\n"
    assert file.relative_to(data).as_posix() not in (data / "games.sha256").read_text()


def test_a_listing_that_cannot_be_read_or_written_is_one_line(data: Path) -> None:
    (data / "games.sha256").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"games.sha256: cannot be read \(not UTF-8\); write it again: python -m"):
        opened(data)
    (data / "games.sha256").unlink()
    (data / "games.sha256").mkdir()
    with pytest.raises(ValueError, match=r"games.sha256: cannot be read \(Is a directory\); write it again"):
        opened(data)
    with pytest.raises(SystemExit, match=r"games.sha256: cannot be written \(Is a directory\)"):
        released.main([str(data)])


def test_a_changed_game_is_refused_by_name_with_a_remedy(data: Path) -> None:
    released.main([str(data)])
    seed = pool("train")[0]
    file = data / Released(str(data)).path(TASK, seed)
    file.write_text(file.read_text().replace("Your task is to: ", "Your task is to: not "))
    with opened(data) as world, pytest.raises(ValueError) as caught:
        world.observe([History(TASK, seed)])
    message = str(caught.value)
    assert message.startswith(f"{file} is not the file that games.sha256 lists; fetch the release again")
    assert message.endswith(f"python -m headroom.worlds.alfworld.released {data}")
    assert "\n" not in message


def test_a_listed_game_that_is_gone_is_noticed_when_the_world_opens(data: Path) -> None:
    released.main([str(data)])
    file = data / Released(str(data)).path(TASK, pool("train")[0])
    file.unlink()
    with pytest.raises(ValueError, match=f"{file} is listed in games.sha256 and missing; fetch the release again"):
        opened(data)


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"pddl_domain": ""}'])
def test_a_file_that_is_no_game_is_named(data: Path, content: str) -> None:
    games = Released(str(data))
    file = data / games.path(TASK, pool("train")[0])
    file.write_text(content)
    with pytest.raises(ValueError, match=f"{file} is no game of ALFWorld"):
        games.game(TASK, pool("train")[0])


def test_what_is_not_there_is_said_in_one_line(data: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"^world.data: games: released needs the folder that alfworld-download filled$"
    ):
        opened(None)
    with pytest.raises(ValueError, match=r"has no json_2.1.1/; type: alfworld-download --data-dir "):
        opened(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="has no games of look_at_obj_in_light; fetch"):
        Released(str(data)).game("look_at_obj_in_light", pool("train")[0])
    with pytest.raises(ValueError, match=r"^seed 5 is in no pool of seeds.tsv"):
        Released(str(data)).game(TASK, 5)
    (data / "games.sha256").write_text("what is this\n")
    with pytest.raises(ValueError, match=r"games.sha256 is not a listing of games; write it again: python -m"):
        opened(data)


@pytest.mark.parametrize(
    "broken",
    [{"pddl_problem": ""}, {"pddl_problem": "(define (problem x)"}, {"pddl_domain": ""}, {"pddl_domain": 3},
     {"grammar": None}, {"grammar": "{"}],
)  # fmt: skip
def test_a_game_that_the_engine_cannot_read_is_one_line_that_names_it(data: Path, broken: dict[str, object]) -> None:
    for file in (data / "json_2.1.1/train").glob(f"{TASK}-*/*/game.tw-pddl"):
        file.write_text(json.dumps(json.loads(file.read_bytes()) | broken))
    with opened(data) as world, pytest.raises(ValueError, match="no game that ALFWorld's engine reads") as caught:
        world.observe([History(TASK, pool("train")[0])])
    assert "game.tw-pddl" in str(caught.value)
    assert "\n" not in str(caught.value)
