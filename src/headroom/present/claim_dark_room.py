"""Rules of the claims about the dark room's arms (arXiv 2607.21273). The words of each rule are in ``claims.yaml``.

Where the words say only what reproduces a claim, it is *not reproduced* if an interval lies wholly on the other side
of its bound; an equivalence, if an interval excludes zero and is not within the margin. Intervals are those of
:mod:`headroom.present.claim_arms`; a claim about an arm that was not made is not run. Where the baseline itself ends
under 5%, nothing is called a collapse.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headroom.measure.intervals import Interval, seed_interval
from headroom.measure.mechanism import COLLAPSED
from headroom.measure.shares import agree, wilson
from headroom.present.claim_arms import (
    Share,
    apart,
    collapsed,
    difference,
    equivalent,
    harms,
    missing,
    share,
)
from headroom.present.claim_tables import Finding, Tables, decide, undecided
from headroom.present.tables import counted

PINNED = 0.95
"""Share of episodes at the turn limit above which an agent's length is pinned."""


def _n(found: Share) -> str:
    return counted(found.seeds, "training seed")


def arm_collapses(tables: Tables, *, arm: str, baseline: str, seeds: int) -> Finding:
    """The arm ends under 5% success while its predictions become better than the baseline's, over enough seeds."""
    if gone := missing(tables, arm, baseline):
        return gone
    success, better = share(tables, arm), difference(tables, arm, baseline, "prediction_score")
    text = f"success {success.said}; prediction score above the baseline's by {better.said}"
    if dead := _dead(tables, baseline):
        return undecided(f"{dead}; {text}")
    if better.seeds < seeds:
        return undecided(f"{better.seeds} of {seeds} training seeds that both arms have; {text}")
    yes = collapsed(success) and better.low > 0
    no = success.low >= COLLAPSED or better.high <= 0
    return Finding(decide(yes=yes, no=no), success.value, success.low, success.high, "share", _n(success), text)


def restored(tables: Tables, *, arm: str, baseline: str, worse: str) -> Finding:
    """The arm is equivalent to the baseline, and better than the worse one."""
    if gone := missing(tables, arm, baseline, worse):
        return gone
    same, gained = difference(tables, arm, baseline), difference(tables, arm, worse)
    yes = equivalent(same, tables.margin) and gained.low > 0
    no = apart(same, tables.margin) or gained.high <= 0
    text = f"against {baseline} {same.said}; against {worse} {gained.said}; margin {100 * tables.margin:g}"
    return Finding(decide(yes=yes, no=no), *same.points, "points", _n(same), text)


def arm_equal(tables: Tables, *, arm: str, baseline: str) -> Finding:
    """The arm is equivalent to the baseline."""
    if gone := missing(tables, arm, baseline):
        return gone
    same = difference(tables, arm, baseline)
    text = f"against {baseline} {same.said}; margin {100 * tables.margin:g}"
    verdict = decide(yes=equivalent(same, tables.margin), no=apart(same, tables.margin))
    return Finding(verdict, *same.points, "points", _n(same), text)


def stays_collapsed(tables: Tables, *, arm: str) -> Finding:
    """The arm ends under 5% success, and after the first validation that is wholly there none leaves that range."""
    if gone := missing(tables, arm):
        return gone
    end = share(tables, arm)
    course = _validations(tables, arm)
    under = [number for number, (_, bounds) in enumerate(course) if bounds.high < COLLAPSED]
    later = course[under[0] + 1 :] if under else []
    stays = all(bounds.high < COLLAPSED for _, bounds in later)
    back = [step for step, bounds in later if bounds.low >= COLLAPSED]
    text = f"success {end.said}; "
    if not under:
        text += "no validation lies under 5% with its whole interval"
    else:
        text += f"under 5% from step {course[under[0]][0]}, {len(later)} later validations, {len(back)} of them above"
    yes = collapsed(end) and bool(under) and stays
    no = end.low >= COLLAPSED or bool(back)
    return Finding(decide(yes=yes, no=no), end.value, end.low, end.high, "share", _n(end), text)


def _validations(tables: Tables, arm: str) -> list[tuple[int, Interval]]:
    """Step and interval of an arm's success at each validation that all its runs have: as of its endpoint."""
    table = tables["validation"]
    own = table[table["arm"] == arm]
    found = []
    for step, rows in own.groupby("step", sort=True):
        values = rows["success"].to_numpy(np.float64)
        if len(rows) < own["run"].nunique():
            continue
        silent = (rows["episodes"] == 0) & (rows["excluded"] == 0)  # no probabilities: none of the pages was won
        episodes = rows["episodes"].mask(silent, own["episodes"].max())
        one = wilson(float(values.mean()), float(episodes.sum()), tables.confidence)
        found.append((int(str(step)), one if agree(values) else seed_interval(values, tables.confidence)))
    return found


def _dead(tables: Tables, baseline: str) -> str:
    """Why nothing is called a collapse, or "": the baseline's own end."""
    end = share(tables, baseline)
    return f"the arm {baseline} itself ends at {end.said}" if end.value < COLLAPSED else ""


def lies_between(tables: Tables, *, arm: str, lower: str, upper: str) -> Finding:
    """The arm lies above one arm, which has collapsed, and below another."""
    if gone := missing(tables, arm, lower, upper):
        return gone
    above, below, floor = difference(tables, arm, lower), difference(tables, arm, upper), share(tables, lower)
    text = f"against {lower} {above.said}; against {upper} {below.said}; success of {lower} {floor.said}"
    if floor.value >= COLLAPSED:
        return undecided(f"the arm {lower} did not collapse; {text}")
    verdict = decide(yes=above.low > 0 and below.high < 0, no=above.high <= 0 or below.low >= 0)
    return Finding(verdict, *below.points, "points", _n(below), text)


def no_arm_harms(tables: Tables, *, arms: Sequence[str], baseline: str, over: str = "") -> Finding:
    """Of no arm does the difference to the baseline leave harm of the margin open.

    ``over``: the arm above which the baseline must lie itself, where the claim is about its gain.
    """
    if gone := missing(tables, *arms, baseline, *([over] if over else [])):
        return gone
    found = {arm: difference(tables, arm, baseline) for arm in arms}
    worst = min(found.values(), key=lambda one: (one.value, one.low))
    yes = all(one.low > -tables.margin for one in found.values())
    no = any(harms(one, tables.margin) for one in found.values())
    text = "; ".join(f"{arm} against {baseline} {one.said}" for arm, one in found.items())
    if over and (gained := difference(tables, baseline, over)).low <= 0:
        return undecided(f"no gain to explain: {baseline} against {over} {gained.said}; {text}")
    return Finding(
        decide(yes=yes, no=no), *worst.points, "points", _n(worst), f"{text}; margin {100 * tables.margin:g}"
    )


def arm_raises(tables: Tables, *, arm: str, baseline: str) -> Finding:
    """The arm lies above the baseline."""
    if gone := missing(tables, arm, baseline):
        return gone
    found = difference(tables, arm, baseline)
    verdict = decide(yes=found.low > 0, no=found.high <= 0)
    return Finding(verdict, *found.points, "points", _n(found), f"against {baseline} {found.said}")


def pinned(tables: Tables, *, arm: str, baseline: str) -> Finding:
    """Episodes of the collapsed arm run to the turn limit, more of them than the baseline's."""
    if gone := missing(tables, arm, baseline):
        return gone
    length, longer = share(tables, arm, "horizon_share"), difference(tables, arm, baseline, "horizon_share")
    success = share(tables, arm)
    text = f"at the turn limit {length.said}; against {baseline} {longer.said}; success {success.said}"
    if success.value >= COLLAPSED:
        return undecided(f"the arm {arm} did not collapse; {text}")
    verdict = decide(yes=length.low > PINNED and longer.low > 0, no=length.high <= PINNED or longer.high <= 0)
    return Finding(verdict, length.value, length.low, length.high, "share", _n(length), text)


def noise_tells(tables: Tables, *, noise: str, baseline: str, signal: str) -> Finding:
    """Noise in the signal's place tells whose fault a collapse is; *not reproduced* cannot come of it.

    An arm with the signal that has not collapsed leaves predictability no fault to be found.
    """
    if gone := missing(tables, noise, baseline, signal):
        return gone
    success, same, ends = share(tables, noise), difference(tables, noise, baseline), share(tables, signal)
    normaliser = collapsed(success)
    predictability = equivalent(same, tables.margin) and collapsed(ends)
    text = (
        f"success with noise {success.said}; against {baseline} {same.said}; success with the {signal} {ends.said}; "
        f"margin {100 * tables.margin:g}"
    )
    if dead := _dead(tables, baseline):
        return undecided(f"{dead}; {text}")
    told = {(True, False): "the normaliser is at fault", (False, True): "predictability is at fault"}
    said = told.get((normaliser, predictability), "undecided")
    verdict = decide(yes=said != "undecided", no=False)
    return Finding(verdict, *same.points, "points", _n(same), f"{said}: {text}")


def warned_in_time(tables: Tables, *, baseline: str) -> Finding:
    """The triple warns of every collapse, before success leaves the baseline's interval for good, and of nothing else;
    the entropy alone also warns of what does not collapse.

    The baseline's interval is that of the same validation; a run collapses if its endpoint is under 5%. Two counts that
    are exact: no interval.
    """
    if gone := missing(tables, baseline):
        return gone
    ends = tables["arms"]
    runs = ends[ends["row"] == "run"].set_index("run")
    entropy = tables["signs"].set_index("run")["entropy_step"].reindex(runs.index)
    dark = runs["success"] < COLLAPSED
    if not dark.any() or dark.all():
        return undecided(f"{int(dark.sum())} of {counted(len(runs), 'run')} collapsed: there is nothing to tell apart")
    lows = {step: bounds.low for step, bounds in _validations(tables, baseline)}
    left = {run: _left(tables, str(run), lows) for run in runs.index[dark]}
    if unseen := [str(run) for run, step in left.items() if step == float("inf")]:
        return undecided(
            f"success of {', '.join(unseen)} never leaves the baseline's interval, so no warning is in time"
        )
    in_time = [bool(runs.loc[run, "warning_step"] < step) for run, step in left.items()]
    false_alarms = int(runs.loc[~dark, "warning_step"].notna().sum())
    by_entropy = int(entropy[~dark].notna().sum())
    yes = all(in_time) and not false_alarms and by_entropy > 0
    text = (
        f"the three signs together in time in {sum(in_time)} of {len(in_time)} collapsed runs and in {false_alarms} of "
        f"{int((~dark).sum())} others; the entropy alone in {by_entropy} of these"
    )
    return Finding(decide(yes=yes, no=not yes), n=counted(len(runs), "run"), detail=text)


def _left(tables: Tables, run: str, lows: dict[int, float]) -> float:
    """The first of the validations at a run's end that all lie below the baseline's interval; infinite if none does.

    A run that ended between two validations of the baseline is held to the one before.
    """
    table = tables["validation"]
    own = table[table["run"] == run].sort_values("step", ascending=False)
    left = float("inf")
    for step, success in zip(own["step"], own["success"], strict=True):
        before = [known for known in lows if known <= step]
        if not before or not success < lows[max(before)]:
            break
        left = float(step)
    return left
