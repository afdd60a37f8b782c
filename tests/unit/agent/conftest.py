"""Hand-made training turns for the codec tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from headroom.agent.codec import SlotCodec
from headroom.agent.prompt import prompt_text
from headroom.agent.tokenizer import Turn
from headroom.worlds.base import Element, Observation


def make_turns() -> list[Turn]:
    """Forty episodes of two made-up tasks; names vary, the frame words do not."""
    turns = []
    for seed in range(20):
        page = Observation(
            f'Click on the "Name{seed}" button.', (Element("button", f"Name{seed}"), Element("button", f"Else{seed}"))
        )
        turns.append(Turn("press-a-button", seed, prompt_text([page], []), f'click button "Name{seed}"'))
        form = Observation(
            f"Enter Word{seed} and click Submit.",
            (
                Element("textbox", ""),
                Element("button", "Submit"),
                Element("text", f"Note{seed}"),
                Element("cell", f"Cell{seed}"),
                Element("combobox", f"List{seed}", value=f"a{seed}", options=(f"Option{seed}", f"a{seed}")),
            ),
        )
        turns.append(Turn("fill-a-form", seed, prompt_text([form], []), f'fill textbox "" "Word{seed}"'))
    return turns


@pytest.fixture(scope="session")
def training_turns() -> list[Turn]:
    return make_turns()


@pytest.fixture(scope="session")
def codec(training_turns: list[Turn]) -> SlotCodec:
    return SlotCodec.build(training_turns, slot_count=64, closed_share=0.15, context=1024)


@pytest.fixture(scope="session")
def saved(codec: SlotCodec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    codec.save(folder)
    return folder
