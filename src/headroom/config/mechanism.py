"""Which policies the mechanism takes apart, and the settings file of each of its jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headroom.config.jobs import FailuresJob, FilmstripJob, GraftJob, MechanismJob, ProbeJob, RankJob
from headroom.config.models import MiniWobSettings, Row, Strict, Study


@dataclass(frozen=True)
class Chosen:
    """What of a study is taken apart.

    ``ranked`` are the policies whose insides are measured, ``grafted`` the runs that are grafted (run -> regime),
    ``regimes`` regime -> runs, each of which the scale makes.
    """

    ranked: tuple[str, ...]
    grafted: dict[str, str]
    regimes: dict[str, tuple[str, ...]]


def chosen(study: Study, runs: Sequence[Row], inits: Sequence[str]) -> Chosen:
    """Apply ``mechanism`` of a study to the runs that its scale makes.

    Raises:
        ValueError: two regimes name the same run.
    """
    settings = study.mechanism
    regimes: dict[str, tuple[str, ...]] = {}
    regime_of: dict[str, str] = {}
    for regime, members in settings.regimes.items():
        for run in members:
            if regime_of.setdefault(run, regime) != regime:
                raise ValueError(f"mechanism.regimes.{regime}: {run!r} is in {regime_of[run]} already; name it once")
        if members:
            regimes[regime] = members
    ranked = [run.run for run in runs if run.family in settings.rank_families]
    return Chosen(
        ranked=(*inits, *ranked),
        grafted={run: name for name, members in regimes.items() if name in settings.graft_regimes for run in members},
        regimes=regimes,
    )


def mechanism_jobs(study: Study, what: Chosen, supervised: str) -> dict[str, Strict]:
    """Name of the settings file -> settings, for every job of the mechanism."""
    settings, world, statistics = study.mechanism, study.world, study.statistics
    jobs: dict[str, Strict] = {
        "probe": ProbeJob(world=world, probe=settings.probe),
        "failures": FailuresJob(regimes={"supervised": (supervised,), **what.regimes}, statistics=statistics),
        "mechanism": MechanismJob(rank=settings.rank, statistics=statistics),
    }
    if isinstance(world, MiniWobSettings):  # a page can be drawn, a text game has none
        jobs["filmstrip"] = FilmstripJob(world=world, regimes=what.regimes)
    for policy in what.ranked:
        jobs[f"rank/{policy}"] = RankJob(policy=policy, rank=settings.rank, statistics=statistics)
    for run, regime in what.grafted.items():
        jobs[f"graft/{run}"] = GraftJob(
            policy=run,
            regime=regime,
            world=world,
            evaluation=study.evaluation,
            graft=settings.graft,
            statistics=statistics,
        )
    return jobs
