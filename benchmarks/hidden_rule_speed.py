"""CPU time of a step of our HiddenRule: random walks to the horizon, 64 side by side, as a rollout plays them.

    python benchmarks/hidden_rule_speed.py [OUTPUT.json]

The world keeps no episode, so a step plays the actions before it again; its memory is off here. Writes
hidden_rule_speed.json.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from headroom.config.worlds import HiddenRuleSettings
from headroom.worlds.base import Action, History
from headroom.worlds.hidden_rule.scenes import TASKS
from headroom.worlds.hidden_rule.world import HiddenRule

EPISODES = 64


def measure() -> dict[str, float]:
    """Resets count as steps."""
    settings = HiddenRuleSettings(memo_megabytes=0)
    histories = [History(TASKS[seed % len(TASKS)], seed) for seed in range(EPISODES)]
    draw, spent, steps = random.Random(0), 0.0, 0
    with HiddenRule(settings) as world:
        for _ in range(settings.horizon + 1):
            start = time.process_time()
            seen = world.observe(histories)
            spent += time.process_time() - start
            steps += len(histories)
            listed = [[each.name for each in point.elements if each.role == "command"] for point in seen]
            histories = [
                history.then(Action("command", text=draw.choice(commands)))
                for history, commands in zip(histories, listed, strict=True)
            ]
    return {
        "horizon": settings.horizon,
        "steps": steps,
        "ours_milliseconds_per_step": round(1000 * spent / steps, 3),
    }


def main(arguments: Sequence[str]) -> None:
    """Print the result and write it to the first argument (default: hidden_rule_speed.json beside this file)."""
    result = measure()
    output = Path(arguments[0]) if arguments else Path(__file__).with_suffix(".json")
    output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
