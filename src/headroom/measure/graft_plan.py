"""Which grafts a study makes of one run, and what each is made of.

Two directions answer two questions. *Sufficiency*: a group of the trained checkpoint in the supervised model; does it
bring the damage along? *Necessity*: a group of the supervised checkpoint in the trained model; does it repair it?
Every component and depth band goes both ways, declared pairs go together, and declared unions get random controls of
the same parameter count and the same norm (:mod:`headroom.measure.edit`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headroom.config.models import Graft
from headroom.measure import groups
from headroom.measure.adapted import switched
from headroom.measure.edit import Edit, Swap, delta_norm, random_control
from headroom.measure.weights import Checkpoint
from headroom.seeds import derive

DIRECTIONS = ("sufficiency", "necessity")


@dataclass(frozen=True, slots=True)
class Planned:
    """One graft. ``kind`` is endpoint, group, pair, or control; ``draw`` is -1 but for a control."""

    name: str
    direction: str
    kind: str
    groups: tuple[str, ...]
    draw: int
    parameters: int
    delta_norm: float
    edit: Edit

    @property
    def scale(self) -> float:
        """How far a control moves its parameters, in units of their way to the donor; 1 for a swap."""
        return 1.0 if isinstance(self.edit, Swap) else self.edit.scale

    def pair(self, sft: Checkpoint, rl: Checkpoint) -> tuple[Checkpoint, Checkpoint]:
        """(base, donor) of this graft."""
        return (rl, sft) if self.direction == "necessity" else (sft, rl)


def plan(sft: Checkpoint, rl: Checkpoint, settings: Graft) -> Iterator[Planned]:
    """The two endpoints, then every graft; both directions share their controls' places, not their bases.

    Where the run is an adapter, a group counts the tensors that it changes; a group of which it changes none, and
    what is declared of such a group, is left out: there is nothing to switch.

    Raises:
        ValueError: a pair or a control names a group that the checkpoints do not have.
    """
    moved = switched(sft, rl)
    known = groups.available(sft, settings.bands)
    movable = [name for name, members in known.items() if not moved.isdisjoint(members)]

    def unions_of(declared: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
        groups.select(sft, [name for union in declared for name in union], settings.bands)  # refuses an unknown name
        return [tuple(union) for union in declared if set(union) <= set(movable)]

    yield Planned("sft", "sufficiency", "endpoint", (), -1, 0, 0.0, Swap(frozenset()))
    yield Planned("rl", "necessity", "endpoint", (), -1, 0, 0.0, Swap(frozenset()))
    for direction in DIRECTIONS:
        base, donor = (rl, sft) if direction == "necessity" else (sft, rl)
        unions = [("group", (name,)) for name in movable]
        for kind, union in unions + [("pair", pair) for pair in unions_of(settings.pairs)]:
            chosen = groups.select(sft, union, settings.bands) & moved
            count = groups.parameter_count(sft, chosen)
            norm = delta_norm(base, donor, chosen)
            name = f"{direction}/{'+'.join(union)}"
            yield Planned(name, direction, kind, union, -1, count, norm, Swap(chosen))
        for union in unions_of(settings.controls_of):
            chosen = groups.select(sft, union, settings.bands) & moved
            count, norm = groups.parameter_count(sft, chosen), delta_norm(base, donor, chosen)
            for draw in range(settings.control_draws):
                seed = derive("graft control", settings.seed, "+".join(union), draw)
                edit = random_control(base, donor, parameters=count, norm=norm, seed=seed)
                name = f"{direction}/{'+'.join(union)}/control-{draw}"
                yield Planned(name, direction, "control", union, draw, count, norm, edit)
