"""Steps per CPU-second of our driver and of the wheel's own Selenium environment: same tasks, seeds and actions.

    python benchmarks/world_speed.py [OUTPUT.json]

CPU time is this process and all its children (browsers, chromedriver), children's ended children included. The clock
runs once the browser stands on the task's page, on both sides: the reference pays a browser a task for that, ours one
page load. Both play whole episodes, resets included, one after the other; the same episodes eight at a time, as a
rollout plays them, are reported beside it. Our memo is off. The reference pauses nowhere and takes no screenshots
(ours observes text); what its default screenshots add is reported beside it. Writes world_speed.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
from selenium_environment import SeleniumEnvironment, missing

from headroom.config.models import MiniWobSettings
from headroom.worlds.base import Action, History, Observation
from headroom.worlds.miniwob.oracles import oracle
from headroom.worlds.miniwob.world import MiniWob

TASKS = (
    "choose-list", "click-button", "click-checkboxes", "click-dialog-2", "click-link", "click-option", "click-tab",
    "enter-password", "enter-text", "find-word", "form-sequence-2", "login-user", "read-table", "search-engine",
    "simple-arithmetic", "social-media-some",
)  # fmt: skip
SEEDS = range(100, 108)
BATCH = 8
Episode = tuple[list[Observation], list[Action]]


def cpu_seconds() -> float:
    """User and system time of this process, its living descendants, and what they have waited for."""
    total = 0.0
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def episodes(world: MiniWob, task: str, seeds: range) -> list[Episode]:
    """The oracle's episodes on these seeds, one call a turn."""
    act = oracle(task)
    histories = [History(task, seed) for seed in seeds]
    played: list[Episode] = [([observation], []) for observation in world.observe(histories)]
    while True:
        going = []
        for index, (observations, actions) in enumerate(played):
            action = act(observations, actions)
            if action is not None:
                actions.append(action)
                histories[index] = histories[index].then(action)
                going.append(index)
        if not going:
            return played
        for index, observation in zip(going, world.observe([histories[index] for index in going]), strict=True):
            played[index][0].append(observation)


def ours(batch: int) -> tuple[dict[str, list[Episode]], float]:
    """Play every task, ``batch`` episodes at a time; return the episodes and the CPU seconds they took."""
    played, total = {}, 0.0
    with MiniWob(MiniWobSettings(memo_megabytes=0)) as world:
        for task in TASKS:
            world.observe([History(task, 0)])
            start = cpu_seconds()
            groups = [SEEDS[first : first + batch] for first in range(0, len(SEEDS), batch)]
            played[task] = [episode for seeds in groups for episode in episodes(world, task, seeds)]
            total += cpu_seconds() - start
    return played, total


def theirs(played: dict[str, list[Episode]], *, screenshots: bool) -> float:
    """Repeat the same actions in the reference; return the CPU seconds they took."""
    total = 0.0
    for task, episodes_of_task in played.items():
        with SeleniumEnvironment(task, screenshots=screenshots) as reference:
            reference.reset(0)
            start = cpu_seconds()
            for seed, (observations, actions) in zip(SEEDS, episodes_of_task, strict=True):
                reference.reset(seed)
                for before, action in zip(observations, actions, strict=False):
                    reference.step(before, action)
            total += cpu_seconds() - start
    return total


def measure(*, screenshots: bool = True) -> dict[str, float]:
    """Both sides in one run, on the same episodes; ``screenshots`` adds the reference with its default settings."""
    played, seconds = ours(1)
    steps = sum(len(actions) for group in played.values() for _, actions in group)
    resets = len(TASKS) * len(SEEDS)
    _, batched_seconds = ours(BATCH)
    reference_seconds = theirs(played, screenshots=False)
    result = {
        "tasks": len(TASKS),
        "episodes": resets,
        "steps": steps,
        "ours_steps_per_cpu_second": round(steps / seconds, 1),
        "ours_batched_steps_per_cpu_second": round(steps / batched_seconds, 1),
        "reference_steps_per_cpu_second": round(steps / reference_seconds, 1),
        "ours_cpu_milliseconds_per_step_or_reset": round(1000 * seconds / (steps + resets), 2),
        "reference_cpu_milliseconds_per_step_or_reset": round(1000 * reference_seconds / (steps + resets), 2),
        "ratio": round(reference_seconds / seconds, 1),
        "ratio_batched": round(reference_seconds / batched_seconds, 1),
    }
    if screenshots:
        result["ratio_to_reference_with_screenshots"] = round(theirs(played, screenshots=True) / seconds, 1)
    return result


def main(arguments: Sequence[str]) -> None:
    """Print the result and write it to the first argument (default: world_speed.json beside this file)."""
    if reason := missing():
        raise SystemExit(f"world_speed: {reason}")
    result = measure()
    output = Path(arguments[0]) if arguments else Path(__file__).with_suffix(".json")
    output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    for name, value in result.items():
        print(f"{name:42} {value}")


if __name__ == "__main__":
    main(sys.argv[1:])
