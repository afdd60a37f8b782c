"""Stage ``demonstrations``: scripted oracles play the training pages; what they saw and did becomes a table.

An episode enters the table only if the world paid it as a success. The others are counted by task and reason in the
job's notes, so that a set of demonstrations says how it was thinned. Equal settings give equal bytes.

A *hasty* demonstrator (``demonstrations.hasty``) leaves out the step before the last in a share of a task's episodes:
it submits a form that lacks its last entry. A policy that imitates a majority of these fails when it is greedy and
succeeds when it samples the minority: headroom put there on purpose, by the demonstrations and not by the
evaluation. Such tasks are named in the settings, and their hasty episodes are marked in the table.

Each page of such a task is shown by several demonstrators (``demonstrations.demonstrators``), hasty and careful ones.
With one a page, a policy learns by heart which pages are done hastily: it is then certain either way, and sampling
finds nothing that greedy choice does not.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headroom.agent.dialect import ANCHOR, SUREST, WEB_PAGES, Dialect, dialect_of
from headroom.agent.serialise import page_text
from headroom.config.jobs import DemonstrationsJob, load_job
from headroom.config.worlds import AlfWorldSettings, HiddenRuleSettings
from headroom.files import write_parquet
from headroom.seeds import derive
from headroom.worlds.base import Action, History, Observation, World

if TYPE_CHECKING:
    import pandas as pd

    from headroom.config.worlds import WorldSettings

Oracle = Callable[[Sequence[Observation], Sequence[Action]], Action | None]
"""(observations, actions) of an episode so far -> the next action; None to give up."""
OracleOf = Callable[[str, int], Oracle]
"""(task, page seed) -> the oracle of one episode."""

FILE = "demonstrations.parquet"
COLUMNS = ("task", "seed", "demonstrator", "turn", "utterance", "observation", "action", "page_digest", "hasty")
BATCH = 64  # episodes that are played side by side


def tenths(turn: int, turns: int) -> int:
    """The confidence of a demonstrator at ``turn`` (from 0) of an episode of ``turns``, which succeeds: the share of it
    that lies behind, in tenths rounded down, and the most at the last turn."""
    return SUREST if turn == turns - 1 else 10 * turn // turns


@dataclass
class Played:
    """One episode as the oracle plays it."""

    task: str
    seed: int
    observations: list[Observation] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    left_out: str = ""  # why the episode is not in the table
    over: bool = False

    def hastily(self) -> list[Action] | None:
        """The actions without the step before the last; None where a demonstrator could not leave it out."""
        if len(self.actions) < 2:
            return None
        last, page = self.actions[-1], self.observations[len(self.actions) - 2]
        there = [(element.role, element.name, element.occurrence) for element in page.elements]
        if last.role and (last.role, last.name, last.occurrence) not in there:
            return None
        return [*self.actions[:-2], last]

    def rows(
        self, hasty: bool = False, demonstrator: int = 0, dialect: Dialect = WEB_PAGES
    ) -> Iterator[tuple[str, int, int, int, str, str, str, str, bool]]:
        """The table rows of a successful episode, in the order of :data:`COLUMNS`."""
        digest = hashlib.sha256(page_text(self.observations[0]).encode("utf-8")).hexdigest()
        utterance = self.observations[0].utterance
        shortened = self.hastily() if hasty else None
        actions = self.actions if shortened is None else shortened
        for turn, action in enumerate(actions):
            prompt = dialect.prompt_text(self.observations[: turn + 1], self.actions[:turn])
            made_hastily = shortened is not None
            # What follows a step that was left out was never seen.
            facts = {} if made_hastily and turn == len(self.actions) - 2 else dict(self.observations[turn + 1].facts)
            anchor = dict(self.observations[turn].facts).get(ANCHOR)
            answer = dialect.write(action, facts, anchor, tenths(turn, len(actions)))
            yield self.task, self.seed, demonstrator, turn, utterance, prompt, answer, digest, made_hastily


def _advance(episode: Played, observation: Observation, oracle: Oracle, horizon: int, success_above: float) -> None:
    """Take in one observation and let the oracle answer, or end the episode."""
    episode.observations.append(observation)
    if observation.failure:
        episode.left_out = "infrastructure"
    elif observation.done:
        episode.left_out = "" if observation.raw_reward > success_above else "not paid"
    elif len(episode.actions) == horizon:
        episode.left_out = "horizon"
    else:
        action = oracle(episode.observations, episode.actions)
        if action is not None:
            episode.actions.append(action)
            return
        episode.left_out = "oracle gave up"
    episode.over = True


def collect(
    world: World,
    oracle_of: OracleOf,
    starts: Iterable[tuple[str, int]],
    *,
    horizon: int,
    success_above: float,
    on_end: Callable[[Played], None] = lambda _: None,
) -> list[Played]:
    """Play every (task, page seed) with its oracle, :data:`BATCH` episodes side by side.

    Args:
        world: where the episodes are played.
        oracle_of: asked once for each episode, when it begins.
        starts: the episodes.
        horizon: actions after which an episode ends as a failure.
        success_above: an episode succeeds when it is done with a raw reward above this.
        on_end: called once for each episode when it is over.

    Returns:
        One :class:`Played` for each start, in the order of ``starts``.
    """
    played: list[Played] = []
    waiting = iter(starts)
    while episodes := [Played(task, seed) for task, seed in islice(waiting, BATCH)]:
        live, oracles = episodes, {id(e): oracle_of(e.task, e.seed) for e in episodes}
        while live:
            histories = [History(e.task, e.seed, tuple(e.actions)) for e in live]
            for episode, observation in zip(live, world.observe(histories), strict=True):
                _advance(episode, observation, oracles[id(episode)], horizon, success_above)
                if episode.over:
                    on_end(episode)
            live = [episode for episode in live if not episode.over]
        played += episodes
    return played


def table(
    played: Iterable[Played],
    hasty: Mapping[str, float] | None = None,
    demonstrators: int = 1,
    dialect: Dialect = WEB_PAGES,
) -> pd.DataFrame:
    """The successful episodes, one row a turn, sorted by (task, seed, demonstrator, turn).

    ``hasty`` gives a task's share of demonstrators that shorten the episode; a task in it is shown ``demonstrators``
    times, the others once. Who is hasty depends on (task, seed) alone.
    """
    import pandas as pd

    shares = hasty or {}
    rows = [
        row
        for episode in played
        if not episode.left_out
        for number, hurries in enumerate(_who_hurries(episode, shares, demonstrators))
        for row in episode.rows(hurries, number, dialect)
    ]
    whole = {"seed": "int64", "demonstrator": "int64", "turn": "int64"}
    frame = pd.DataFrame(rows, columns=list(COLUMNS)).astype(whole)
    return frame.sort_values(["task", "seed", "demonstrator", "turn"], kind="stable", ignore_index=True)


def _who_hurries(episode: Played, shares: Mapping[str, float], demonstrators: int) -> list[bool]:
    """One entry a demonstrator. Systematic sampling: the share holds on each page as nearly as whole numbers allow."""
    if not shares.get(episode.task):
        return [False]
    start = derive("hasty", episode.task, episode.seed) / 2**63
    return [(number + start) / demonstrators < shares[episode.task] for number in range(demonstrators)]


def left_out(played: Iterable[Played]) -> dict[str, dict[str, int]]:
    """Task -> reason -> number of episodes that are not in the table; tasks without any are absent."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for episode in played:
        if episode.left_out:
            counts[episode.task][episode.left_out] += 1
    return {task: dict(sorted(reasons.items())) for task, reasons in sorted(counts.items())}


def _episodes(frame: pd.DataFrame) -> dict[str, int]:
    return {str(task): int(count) for task, count in frame.groupby("task")["seed"].nunique().items()}


def _starts(job: DemonstrationsJob) -> list[tuple[str, int]]:
    from headroom.worlds.seeds import pool

    wanted = job.demonstrations
    for key, named in (("episodes_override", wanted.episodes_override), ("hasty", wanted.hasty)):
        unknown = sorted(set(named) - set(job.tasks))
        if unknown:
            raise SystemExit(f"demonstrations.{key}: {', '.join(unknown)}: not among the tasks; remove the key")
    counts = {task: wanted.episodes_override.get(task, wanted.episodes_per_task) for task in sorted(job.tasks)}
    seeds = pool("train", max(counts.values(), default=0))
    return [(task, seed) for task, count in counts.items() for seed in seeds[:count]]


def without_oracle(settings: WorldSettings, tasks: Iterable[str]) -> list[str]:
    """The tasks of a world that nobody can demonstrate, sorted."""
    return sorted(set(tasks) - set(_scripts(settings)[0]))


def oracles_for(settings: WorldSettings, world: World) -> OracleOf:  # noqa: ARG001
    """Who demonstrates in ``world``, which ``settings`` describe.

    They are scripts that know what an agent has seen, in a text game too: what a planner does, which knows where
    everything lies or which rule holds, cannot be learned from what the agent reads.
    """
    _, oracle = _scripts(settings)
    return lambda task, _seed: oracle(task)


def _scripts(settings: WorldSettings) -> tuple[Iterable[str], Callable[[str], Oracle]]:
    """The tasks that have an oracle, and what makes it."""
    if isinstance(settings, AlfWorldSettings):
        from headroom.worlds.alfworld import oracles as of_game  # type: ignore[import-not-found, unused-ignore]

        return of_game.ORACLES, of_game.oracle
    if isinstance(settings, HiddenRuleSettings):
        from headroom.worlds.hidden_rule import oracles as of_rule

        return of_rule.ORACLES, of_rule.oracle
    from headroom.worlds.miniwob.oracles import ORACLES, oracle

    return ORACLES, oracle


def main(
    config: Annotated[Path, typer.Option(help="The resolved settings of this job.")],
    output: Annotated[Path, typer.Option(help="The folder of the result.")],
) -> None:
    """Collect oracle demonstrations on the train seeds."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from headroom.provenance import record
    from headroom.worlds.open import open_world

    job_settings = load_job(config, DemonstrationsJob)
    starts = _starts(job_settings)
    if without := without_oracle(job_settings.world, job_settings.tasks):
        raise SystemExit(f"{config}: tasks: no oracle plays {', '.join(without)}; take them off tasks.candidates")
    with record.job(stage="train.demonstrations", output=output, inputs={}, config=config, seeds={}) as job:
        columns = (TextColumn("demonstrations"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with (
            open_world(job_settings.world, job.notes) as world,
            Progress(*columns, TextColumn("{task.description}")) as progress,
        ):
            bar = progress.add_task("", total=len(starts))
            played = collect(
                world,
                oracles_for(job_settings.world, world),
                starts,
                horizon=job_settings.world.horizon,
                success_above=job_settings.world.success_above,
                on_end=lambda episode: progress.update(bar, advance=1, description=episode.task),
            )
        wanted = job_settings.demonstrations
        frame = table(played, wanted.hasty, wanted.demonstrators, dialect_of(job_settings.world.kind))
        missing = sorted(set(job_settings.tasks) - set(frame["task"]))
        if missing:
            raise SystemExit(
                f"{config}: tasks: no demonstration of {', '.join(missing)} succeeded ({left_out(played)}); "
                "raise world.horizon or take the task off tasks.candidates"
            )
        write_parquet(job.output / FILE, frame)
        job.notes["episodes"] = _episodes(frame)
        job.notes["left_out"] = left_out(played)
        job.notes["hasty"] = {
            task: len(some[["seed", "demonstrator"]].drop_duplicates())
            for task, some in frame[frame["hasty"]].groupby("task")
        }
        job.notes["turns"] = len(frame)


if __name__ == "__main__":
    typer.run(main)
