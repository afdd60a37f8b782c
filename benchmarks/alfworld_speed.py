"""CPU time of ALFWorld's own environment and of ours on it: the same games, the same actions, one after the other.

    python benchmarks/alfworld_speed.py [OUTPUT.json]

The games are generated ("ALFWorld engine, synthetic scenes"): every task type, at the default size and as full as a
real kitchen. In each, the planner's way and a random walk. Ours is asked through the world's ``observe``, so the page
that an agent reads is made too; its memory is off. 64 games in lockstep, as a rollout plays them, are
reported beside it. Writes alfworld_speed.json.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from stock_alfworld import StockGame, missing

from headroom.config.worlds import AlfWorldSettings
from headroom.worlds.alfworld import scenes
from headroom.worlds.alfworld.scenes import TASKS
from headroom.worlds.alfworld.world import AlfWorld
from headroom.worlds.base import Action, History

SIZES = {"default": (8, 8), "full": (24, 24)}
SEEDS = range(100, 102)
LOCKSTEP = 64  # games
WALK = 15  # actions of a random walk


def walk(world: AlfWorld, task: str, seed: int) -> list[str]:
    """Admitted commands drawn at random."""
    draw, history = random.Random(seed), History(task, seed)
    chosen: list[str] = []
    while len(chosen) < WALK:
        seen = world.observe([history])[0]
        if seen.done:
            break
        chosen.append(draw.choice([each.name for each in seen.elements if each.role == "command"]))
        history = history.then(Action("command", text=chosen[-1]))
    return chosen


def episodes(settings: AlfWorldSettings) -> list[tuple[str, int, list[str]]]:
    """Every game with the commands to play in it."""
    chosen = []
    with AlfWorld(settings) as world:
        for task in TASKS:
            for seed in SEEDS:
                plan = world.plan(History(task, seed)) or ()
                chosen += [(task, seed, [action.text for action in plan]), (task, seed, walk(world, task, seed))]
    return chosen


def ours(settings: AlfWorldSettings, played: Sequence[tuple[str, int, list[str]]]) -> tuple[float, float, list[str]]:
    """CPU seconds of loading and of stepping, and what was said."""
    loading = stepping = 0.0
    said = []
    for task, seed, commands in played:
        with AlfWorld(settings) as world:
            history = History(task, seed)
            start = time.process_time()
            world.observe([history])
            loading += time.process_time() - start
            start = time.process_time()
            for command in commands:
                history = history.then(Action("command", text=command))
                said.append(world.observe([history])[0].elements[0].name)
            stepping += time.process_time() - start
    return loading, stepping, said


def theirs(settings: AlfWorldSettings, played: Sequence[tuple[str, int, list[str]]]) -> tuple[float, float, list[str]]:
    """As :func:`ours`, in the original environment."""
    loading = stepping = 0.0
    said = []
    for task, seed, commands in played:
        source = scenes.game(task, seed, settings.receptacles, settings.objects)
        start = time.process_time()
        stock = StockGame(source)
        stock.reset()
        loading += time.process_time() - start
        start = time.process_time()
        said += [stock.step(command)[0].strip() for command in commands]
        stepping += time.process_time() - start
    return loading, stepping, said


def lockstep(settings: AlfWorldSettings) -> float:
    """CPU milliseconds a step when many games are played side by side."""
    with AlfWorld(settings) as world:
        starts = [History(TASKS[seed % len(TASKS)], seed) for seed in range(LOCKSTEP)]
        walks = [walk(world, history.task, history.seed) for history in starts]
        world.close()
        world.observe(starts)
        histories, steps, start = starts, 0, time.process_time()
        for turn in range(WALK):
            histories = [
                each.then(Action("command", text=commands[turn])) if turn < len(commands) else each
                for each, commands in zip(histories, walks, strict=True)
            ]
            world.observe(histories)
            steps += len(histories)
        return 1000 * (time.process_time() - start) / steps


def measure() -> dict[str, float]:
    """Both sides in one run."""
    result: dict[str, float] = {}
    for size, (receptacles, objects) in SIZES.items():
        settings = AlfWorldSettings(receptacles=receptacles, objects=objects, memo_megabytes=0)
        played = episodes(settings)
        steps = sum(len(commands) for _, _, commands in played)
        loading, stepping, said = ours(settings, played)
        stock_loading, stock_stepping, stock_said = theirs(settings, played)
        assert said == stock_said
        result |= {
            f"{size}_games": len(played),
            f"{size}_steps": steps,
            f"{size}_ours_milliseconds_per_load": round(1000 * loading / len(played), 1),
            f"{size}_stock_milliseconds_per_load": round(1000 * stock_loading / len(played), 1),
            f"{size}_ours_milliseconds_per_step": round(1000 * stepping / steps, 2),
            f"{size}_stock_milliseconds_per_step": round(1000 * stock_stepping / steps, 2),
            f"{size}_ratio_of_steps": round(stock_stepping / stepping, 1),
            f"{size}_ratio_of_loads": round(stock_loading / loading, 1),
            f"{size}_ours_lockstep_milliseconds_per_step": round(lockstep(settings), 2),
        }
    return result


def main(arguments: Sequence[str]) -> None:
    """Print the result and write it to the first argument (default: alfworld_speed.json beside this file)."""
    if reason := missing():
        raise SystemExit(f"alfworld_speed: {reason}")
    result = measure()
    output = Path(arguments[0]) if arguments else Path(__file__).with_suffix(".json")
    output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    for name, value in result.items():
        print(f"{name:48} {value}")


if __name__ == "__main__":
    main(sys.argv[1:])
