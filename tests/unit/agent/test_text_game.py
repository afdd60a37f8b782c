"""The text game's dialect: prompts, answers with a prediction, the slot codec, and the checkpoint that carries it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_codec import _plain_tokenizer

from headroom.agent.codec import PlainCodec, SlotCodec, load_codec
from headroom.agent.dialect import (
    WEB_PAGES,
    check_dialect,
    dialect_named,
    dialect_of,
    read_dialect,
)
from headroom.agent.spoken import FILE, check_same_dialect, write_spoken
from headroom.agent.text_game import HIDDEN_RULE, LOCATION, OBJECTS, TEXT_GAME
from headroom.agent.tokenizer import Turn
from headroom.provenance.closure import DIALECTS, WORLDS
from headroom.worlds.base import Action, Element, Observation, Outcome

COMMANDS = ("go to cabinet 1", "open drawer 12", "put pen 3 in/on desk 1", "look")


def a_point(*commands: str, outcome: Outcome = Outcome.OK, said: str = "You see a mug 1.") -> Observation:
    return Observation(
        "put a clean mug in coffeemachine.",
        (Element("text", said), *(Element("command", command) for command in commands)),
        outcome,
    )


def command(text: str) -> Action:
    return Action("command", text=text)


def test_a_prompt_shows_what_the_game_said_its_commands_and_the_last_two_turns() -> None:
    points = [a_point("look"), a_point("look"), a_point("look", outcome=Outcome.UNSUPPORTED), a_point(*COMMANDS[:2])]
    actions = [command("look"), command('say "hi"'), Action("malformed", text="do it\naction:")]
    points[-1] = Observation(points[-1].utterance, points[-1].elements, Outcome.MALFORMED)
    assert TEXT_GAME.prompt_text(points, actions).split("\n") == [
        "goal: put a clean mug in coffeemachine.",
        "page:",
        'text "You see a mug 1."',
        'command "go to cabinet 1"',
        'command "open drawer 12"',
        "history:",
        'do "say \\"hi\\"" -> unsupported',
        'malformed "do it\\naction:" -> malformed',
        "action:",
    ]


texts = st.text(min_size=1)
facts = st.fixed_dictionaries({}, optional={LOCATION: st.text(), OBJECTS: st.sampled_from(["yes", "no"])})
anchors = st.none() | st.text() | st.sampled_from(["sure", 'know "x"', "0"])
tenths = st.none() | st.integers(0, 9)


@given(texts, facts, anchors, tenths)
def test_an_answer_reads_back_as_its_command_and_all_that_it_says(
    text: str, known: dict[str, str], anchor: str | None, sure: int | None
) -> None:
    answer = TEXT_GAME.write(command(text), known, anchor, sure)
    assert "\n" not in answer
    assert TEXT_GAME.parse(answer) == command(text)
    assert TEXT_GAME.prediction(answer) == (known if len(known) == 2 else {})
    assert TEXT_GAME.anchor(answer) == anchor
    assert TEXT_GAME.confidence(answer) == (sure or 0) / 9


pieces = st.sampled_from(["expect", "know", "sure", '"mug 1"', '"7"', '"yes"', '"', "no", '"sure"', '\\"'])
noise = st.text() | st.text(alphabet='do expect"\\ yn1', max_size=40)


@given(noise | st.lists(pieces, max_size=9).map(lambda some: " ".join(['do "look"', *some])))
def test_any_text_is_a_command_or_malformed_and_says_what_can_be_said_or_nothing(text: str) -> None:
    action = TEXT_GAME.parse(text)
    assert action == Action("malformed", text=text) or (action.verb == "command" and action.text)
    predicted, anchor, confidence = TEXT_GAME.prediction(text), TEXT_GAME.anchor(text), TEXT_GAME.confidence(text)
    assert set(predicted) in (set(), {LOCATION, OBJECTS})
    assert confidence in {tenth / 9 for tenth in range(10)}
    if action.verb == "malformed":
        assert (predicted, anchor, confidence) == ({}, None, 0.0)
    else:
        rest = TEXT_GAME.write(action, predicted, anchor, round(9 * confidence))
        assert (TEXT_GAME.prediction(rest), TEXT_GAME.anchor(rest)) == (predicted, anchor)


@pytest.mark.parametrize(
    ("answer", "location"),
    [
        ('do "look" expect "cabinet 1" "yes"', "cabinet 1"),
        ('  do  "look"   expect "cabinet 1"  "no" ', "cabinet 1"),
        ('do "look"', None),
        ('do "look" expect "cabinet 1"', None),
        ('do "look" expect cabinet 1 yes', None),
        ('do "look" expect "cabinet 1" "yes" "more"', None),
        ('do "look" expect "cabinet 1" "yes" hm know "x"', None),
        ('do "look" know "x" expect "cabinet 1" "yes"', None),
        ('do "look" I think that', None),
    ],
)
def test_a_missing_or_malformed_block_is_no_prediction_but_the_command_counts(
    answer: str, location: str | None
) -> None:
    assert TEXT_GAME.parse(answer) == command("look")
    assert TEXT_GAME.prediction(answer).get(LOCATION) == location


@pytest.mark.parametrize(
    ("blocks", "anchor", "tenth"),
    [
        ('know "mug 1" sure "7"', "mug 1", 7),
        ('sure "7"', None, 7),
        ('expect "cabinet 1" know "mug 1" sure "7"', "mug 1", 7),
        ('know mug 1 sure "7"', None, 7),
        ('know "mug 1" "mug 2" sure "7"', None, 7),
        ('know "mug 1" know "mug 2" sure "7"', "mug 1", 7),
        ('know know "mug 1"', None, 0),
        ('sure "7" know "mug 1"', None, 7),
        ('know "mug 1" sure "10"', "mug 1", 0),
        ('know "mug 1" sure "\u0667"', "mug 1", 0),
        ('know "" sure 7', "", 0),
        ("", None, 0),
    ],
)
def test_each_block_stands_for_itself_in_its_place(blocks: str, anchor: str | None, tenth: int) -> None:
    answer = f'do "look" {blocks}'
    assert TEXT_GAME.parse(answer) == command("look")
    assert TEXT_GAME.anchor(answer) == anchor
    assert TEXT_GAME.confidence(answer) == tenth / 9


def test_a_web_page_asks_nothing() -> None:
    answer = 'click button "Ok" know "x" sure "7"'
    assert (WEB_PAGES.anchor(answer), WEB_PAGES.confidence(answer)) == (None, None)
    assert WEB_PAGES.write(Action("click", "button", "Ok"), {}, "x", 7) == 'click button "Ok"'


@pytest.mark.parametrize(
    "answer", ["", "look", "do look", 'do ""', 'do "look', 'click button "Ok"', 'expect "a" "yes"']
)
def test_a_text_without_a_command_is_malformed(answer: str) -> None:
    assert TEXT_GAME.parse(answer) == Action("malformed", text=answer)
    assert TEXT_GAME.prediction(answer) == {}
    assert TEXT_GAME.anchor(answer) is None


def test_what_is_no_command_cannot_be_written() -> None:
    for action in (Action("click", "button", "Ok"), command(""), Action("command", name="x", text="look")):
        with pytest.raises(ValueError, match="not a command"):
            TEXT_GAME.write(action, {})
    assert TEXT_GAME.write(Action("malformed", text="hm"), {LOCATION: "x", OBJECTS: "no"}) == "hm"


# The tiny model's codec


def training_turns() -> list[Turn]:
    turns = []
    for seed in range(20):
        place = f"thing{seed} {seed % 3 + 1}"
        page = a_point(
            f"go to {place}", f"put pen 1 in/on {place}", "look", said=f"You are in a room. You see {place}."
        )
        foreseen = {LOCATION: place, OBJECTS: "yes" if seed % 2 else "no"}
        answer = TEXT_GAME.write(command(f"go to {place}"), foreseen, "nothing", 3)
        turns.append(Turn("put", seed, TEXT_GAME.prompt_text([page], []), answer))
        turns.append(Turn("put", seed, TEXT_GAME.prompt_text([page, page], [command("look")]), 'do "look"'))
    return turns


@pytest.fixture(scope="module")
def game_codec() -> SlotCodec:
    return SlotCodec.build(training_turns(), slot_count=64, closed_share=0.15, context=1024, dialect=TEXT_GAME)


things = st.sampled_from(["mug", "desk", "zebra", "cabinet", "pen", "soapbar", "thing3"])
named = st.builds(lambda thing, number: f"{thing} {number}", things, st.integers(1, 3))
commands = (
    st.builds(lambda a: f"go to {a}", named)
    | st.builds(lambda a, b: f"put {a} in/on {b}", named, named)
    | st.builds(lambda a, b: f"take {a} from {b}", named, named)
    | st.just("look")
)


@given(st.lists(commands, min_size=1, max_size=8, unique=True), st.data())
def test_a_command_of_the_page_and_all_that_is_said_beside_it_survive_the_tokens(
    game_codec: SlotCodec, listed: list[str], data: st.DataObject
) -> None:
    place = data.draw(named)
    page = a_point(*listed, said=f"You arrive at {place}. On it, you see a mug 1 in/on take from.")
    prompt = game_codec.encode_prompt(TEXT_GAME.prompt_text([page], []))
    known = data.draw(st.sampled_from([{}, {LOCATION: place, OBJECTS: "yes"}, {LOCATION: place, OBJECTS: "no"}]))
    # The demonstrations above say no tenth but 3: every digit has its own token all the same.
    anchor, sure = data.draw(st.sampled_from([None, "nothing", place])), data.draw(tenths)
    answer = TEXT_GAME.write(command(data.draw(st.sampled_from(listed))), known, anchor, sure)
    ids = game_codec.encode_action(answer, prompt)
    assert game_codec.other_id not in ids
    assert game_codec.decode_action(ids, prompt) == answer


@given(st.lists(st.integers(-5, 200), max_size=12))
def test_any_tokens_decode_to_a_command_or_to_no_action(game_codec: SlotCodec, ids: list[int]) -> None:
    prompt = game_codec.encode_prompt(TEXT_GAME.prompt_text([a_point(*COMMANDS)], []))
    assert TEXT_GAME.parse(game_codec.decode_action(ids, prompt)).verb in ("command", "malformed")


def test_words_without_a_leading_do_are_no_command(game_codec: SlotCodec) -> None:
    prompt = game_codec.encode_prompt(TEXT_GAME.prompt_text([a_point(*COMMANDS)], []))
    ids = game_codec.encode_action('do "go to cabinet 1"', prompt)
    assert TEXT_GAME.parse(game_codec.decode_action(ids[1:], prompt)).verb == "malformed"


def test_a_command_is_read_in_words_so_that_its_verb_shows(game_codec: SlotCodec) -> None:
    shown = game_codec.slot_text(TEXT_GAME.prompt_text([a_point("go to zebra 1")], []))
    assert "[command] go to <s" in shown


# The checkpoint that carries it


def test_every_checkpoint_says_what_its_policy_speaks(game_codec: SlotCodec, codec: SlotCodec, tmp_path: Path) -> None:
    for folder, made in (("game", game_codec), ("web", codec)):
        (tmp_path / folder).mkdir()
        made.save(tmp_path / folder)
    assert (tmp_path / "game" / FILE).read_text() == '{\n  "dialect": "text game"\n}\n'
    assert (tmp_path / "web" / FILE).read_text() == '{\n  "dialect": "web pages"\n}\n'
    again = load_codec(tmp_path / "game")
    assert again.dialect is TEXT_GAME
    assert load_codec(tmp_path / "web").dialect is WEB_PAGES
    (tmp_path / "again").mkdir()
    again.save(tmp_path / "again")
    assert {file.name: file.read_bytes() for file in (tmp_path / "again").iterdir()} == {
        file.name: file.read_bytes() for file in (tmp_path / "game").iterdir()
    }
    prompt = TEXT_GAME.prompt_text([a_point(*COMMANDS)], [])
    assert again.encode_prompt(prompt).ids.tolist() == game_codec.encode_prompt(prompt).ids.tolist()


def test_a_released_model_is_told_the_rules_of_its_world_and_carries_them_on(tmp_path: Path) -> None:
    template = "{{ messages[0]['content'] }}|{{ messages[1]['content'] }}|{{ enable_thinking }}"
    made = PlainCodec(_plain_tokenizer("<pad>", template), dialect=TEXT_GAME)
    shown = made.decode_action(made.encode_prompt("goal: x\npage:\naction:").ids, made.encode_prompt(""))
    assert "ANSWER is what you carry now" in TEXT_GAME.instructions
    assert shown == f"{TEXT_GAME.instructions}|goal: x\npage:\naction:|False"
    made.save(tmp_path)
    assert load_codec(tmp_path).dialect is TEXT_GAME
    assert load_codec(tmp_path, dialect=WEB_PAGES).dialect is WEB_PAGES


@pytest.mark.parametrize(
    "content",
    [b'{"dialect"', b"[]", b'"web pages"', b'{"dialect": 5}', b"{}", b"\xff\xfe", b"[" * 100_000],
    ids=["cut", "list", "text", "number", "empty", "not UTF-8", "deep"],
)
def test_a_damaged_name_is_one_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(ValueError, match=r"agent\.json: cannot be read \(.*\); the checkpoint is incomplete"):
        load_codec(tmp_path)


def test_an_unknown_name_or_a_folder_of_that_name_is_one_error(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"dialect": "klingon"}')
    with pytest.raises(ValueError, match=r"agent\.json: dialect 'klingon' is unknown; known are web pages, text game"):
        read_dialect(tmp_path)
    (tmp_path / FILE).unlink()
    (tmp_path / FILE).mkdir()
    with pytest.raises(ValueError, match=r"agent\.json: cannot be read"):
        check_dialect(tmp_path, "miniwob", released=True)


def test_a_checkpoint_of_another_world_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"dialect": "web pages"}')
    check_dialect(tmp_path, "miniwob")
    with pytest.raises(ValueError, match=r"speaks the dialect 'web pages', but world\.kind alfworld needs 'text game'"):
        check_dialect(tmp_path, "alfworld")
    (tmp_path / FILE).write_text('{"dialect": "text game"}')
    check_dialect(tmp_path, "alfworld")
    with pytest.raises(ValueError, match="needs 'web pages'"):
        check_dialect(tmp_path, "miniwob", released=True)


def test_only_a_released_model_may_name_no_dialect_and_a_lost_name_is_found(tmp_path: Path) -> None:
    check_dialect(tmp_path, "miniwob", released=True)
    assert read_dialect(tmp_path) is WEB_PAGES
    with pytest.raises(ValueError, match=r"agent\.json is missing; the checkpoint is incomplete"):
        check_dialect(tmp_path, "miniwob")
    (tmp_path / "slots.json").write_text("{}")  # no released model holds it
    with pytest.raises(ValueError, match=r"agent\.json is missing; the checkpoint is incomplete"):
        check_dialect(tmp_path, "miniwob", released=True)
    with pytest.raises(ValueError, match=r"agent\.json is missing"):
        load_codec(tmp_path)


def test_two_checkpoints_of_two_worlds_are_no_pair(tmp_path: Path) -> None:
    released, web, game = (tmp_path / name for name in ("released", "web", "game"))
    for folder, name in ((web, "web pages"), (game, "text game")):
        folder.mkdir()
        write_spoken(name, folder)
    released.mkdir()
    check_same_dialect(web, web)
    check_same_dialect(released, released)
    for other in (web, released):
        with pytest.raises(ValueError, match="game: the checkpoint speaks the dialect 'text game'"):
            check_same_dialect(other, game)


def test_each_world_has_its_dialect() -> None:
    assert dialect_of("miniwob") is dialect_named("web pages") is WEB_PAGES
    assert dialect_of("alfworld") is dialect_named("text game") is TEXT_GAME
    assert dialect_of("hidden_rule") is dialect_named("hidden rule") is HIDDEN_RULE
    assert "ANSWER is how many devices were on" in HIDDEN_RULE.instructions
    assert {dialect_of(kind).name for kind in WORLDS} == DIALECTS.keys()
    assert all(dialect_of(kind).name == name for name, kind in DIALECTS.items())
    with pytest.raises(ValueError, match=r"world\.kind 'chess'"):
        dialect_of("chess")
