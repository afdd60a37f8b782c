"""What a policy reads at one turn: the goal, the page, and what it just did.

::

    goal: Select Peru from the list and click Submit.
    page:
    combobox "" options on "Chad" "Peru"
    button "Submit"
    history:
    select combobox "" "Togo" -> unsupported
    action:

A large model reads this text under :data:`INSTRUCTIONS`; the tiny model's codec reads the very same text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headroom.agent.grammar import MALFORMED, quote, render
from headroom.agent.serialise import page_text
from headroom.worlds.base import Action, Observation

GOAL = "goal:"
PAGE = "page:"
HISTORY = "history:"
ACTION = "action:"
ARROW = "->"
HISTORY_ACTIONS = 2
_SHOWN_MALFORMED = 60  # characters of a malformed action that its author gets to see again

INSTRUCTIONS = """\
You operate a web page to reach a goal. Each turn you read the goal, the page (one element a line: role, states, \
"name", #n when the name repeats, = "value") and your last actions with their outcomes.
Answer with exactly one action and nothing else:
click ROLE "NAME"
fill ROLE "NAME" "TEXT"
select ROLE "NAME" "OPTION"
press "KEY"
scroll "DIRECTION"
ROLE and NAME are copied from the page; add #n after NAME where it stands there. Inside quotes write \\" for a quote."""


def past_malformed(action: Action) -> str:
    """A past malformed answer, cut short and quoted, so that it cannot look like a line of the prompt."""
    return f"{MALFORMED} {quote(action.text[:_SHOWN_MALFORMED])}"


def _past(action: Action) -> str:
    return past_malformed(action) if action.verb == MALFORMED else render(action)


def prompt_text(observations: Sequence[Observation], actions: Sequence[Action]) -> str:
    """The prompt of the next turn on a web page; see :func:`frame`."""
    return frame(observations, actions, _past)


def frame(observations: Sequence[Observation], actions: Sequence[Action], past: Callable[[Action], str]) -> str:
    """The prompt of the next turn.

    Args:
        observations: every observation of the episode so far, the current page last.
        actions: every action so far; ``observations[i + 1]`` is what followed ``actions[i]``.
        past: one past action as the history shows it, one line.

    Raises:
        ValueError: the two do not fit together.
    """
    if len(observations) != len(actions) + 1:
        msg = f"{len(observations)} observations do not follow {len(actions)} actions"
        raise ValueError(msg)
    current = observations[-1]
    # Runs of white space in a goal carry no meaning on these pages, and a line break would end the line; a lone
    # surrogate cannot be stored as UTF-8.
    goal = " ".join(current.utterance.split()).encode("utf-8", "replace").decode("utf-8")
    lines = [f"{GOAL} {goal}", PAGE]
    page = page_text(current)
    if page:
        lines.append(page)
    first = max(0, len(actions) - HISTORY_ACTIONS)
    if actions:
        lines.append(HISTORY)
        lines += [
            f"{past(action)} {ARROW} {after.outcome.value}"
            for action, after in zip(actions[first:], observations[first + 1 :], strict=True)
        ]
    lines.append(ACTION)
    return "\n".join(lines)
