"""What is said, admitted and paid here is what ALFWorld's own environment says, admits and pays."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from stock_alfworld import StockGame

from headroom.worlds.alfworld import engine as engine_module
from headroom.worlds.alfworld import scenes
from headroom.worlds.alfworld.engine import Engine, Game
from headroom.worlds.alfworld.scenes import TASKS, GameFile

pytestmark = pytest.mark.usefixtures("engine_here")


@pytest.fixture(scope="module")
def engine(engine_here: None) -> Engine:
    return engine_module.engine()


def compare(engine: Engine, source: GameFile, choose: Callable[[int, list[str]], str | None]) -> bool:
    """Play one game in both; return whether it was won."""
    stock, game = StockGame(source), Game(source)
    theirs, position = stock.reset(), engine.start(game)
    for turn in range(40):
        ours = engine.says(game, position), sorted(engine.commands(game, position)), position.won
        assert ours == theirs
        command = choose(turn, theirs[1])
        if command is None:
            break
        theirs = stock.step(command)
        following = engine.step(game, position, command)
        if following is None:
            assert theirs == ("Nothing happens.", sorted(engine.commands(game, position)), position.won)
            theirs = ours[0], *theirs[1:]
        position = following or position
    return position.won


def along_the_plan(engine: Engine, source: GameFile) -> Callable[[int, list[str]], str | None]:
    game = Game(source)
    plan = engine.plan(game, engine.start(game))
    assert plan
    return lambda turn, _: plan[turn] if turn < len(plan) else None


def at_random(seed: int, turns: int) -> Callable[[int, list[str]], str | None]:
    draw = random.Random(seed)

    def choose(turn: int, admitted: list[str]) -> str | None:
        command = "go to nowhere 1" if draw.random() < 0.1 else draw.choice(admitted)
        return command if turn < turns else None

    return choose


def test_a_game_of_two_things_is_the_original(engine: Engine) -> None:
    source = scenes.game("pick_two_obj_and_place", 0, 6, 6)
    assert compare(engine, source, along_the_plan(engine, source))
    compare(engine, source, at_random(0, 8))


def unusual(source: GameFile) -> GameFile:
    """What generated scenes lack and released ones have: shared places, open doors, things in things, other words."""
    problem = source.problem
    facts = [line for line in problem.splitlines() if line.startswith("(openable ")]
    opened = facts[0].replace("openable", "opened")
    things = [line.split()[0] for line in problem.splitlines() if line.endswith(" - object")]
    inner = f"(inReceptacleObject {things[0]} {things[1]})\n(isReceptacleObject {things[1]})"
    problem = problem.replace(" loc_2)", " loc_1)").replace("(atLocation agent1 loc_0)", "(atLocation agent1 loc_1)")
    problem = problem.replace(facts[0], f"{facts[0]}\n{opened}\n{inner}")
    grammar = source.grammar.replace("move {o} to {r}", "put {o} in/on {r}").replace("You move the", "You put the")
    return replace(source, problem=problem, grammar=grammar)


@pytest.mark.parametrize("task", ["pick_heat_then_place_in_recep", "pick_cool_then_place_in_recep"])
def test_what_only_released_games_have_is_the_original_too(engine: Engine, task: str) -> None:
    source = unusual(scenes.game(task, 0, 8, 8))
    game = Game(source)
    assert engine.start(game).at, "the agent begins beside a receptacle"
    assert any(command.startswith("put ") for command in engine.plan(game, engine.start(game)) or ())
    assert compare(engine, source, along_the_plan(engine, source))
    compare(engine, source, at_random(1, 20))


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_games_of_every_type_are_the_original(engine: Engine, task: str) -> None:
    for seed in range(2):
        source = scenes.game(task, 1000 + seed, 8, 8)
        assert compare(engine, source, along_the_plan(engine, source))
        for walk in range(2):
            compare(engine, source, at_random(walk, 25))


@pytest.mark.slow
def test_a_full_kitchen_is_the_original(engine: Engine) -> None:
    source = scenes.game("pick_heat_then_place_in_recep", 5, 24, 24)
    assert compare(engine, source, along_the_plan(engine, source))
    compare(engine, source, at_random(3, 30))
