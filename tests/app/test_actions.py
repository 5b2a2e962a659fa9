from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.actions import ACTIONS, BY_COMMAND, BY_ID, ActionId, Context
from app.slash import CommandError, matching_commands, parse_command


def test_every_action_stands_in_the_table_once_with_a_title_and_help():
    assert [a.id for a in ACTIONS] == list(BY_ID)
    assert set(BY_ID) == set(ActionId)
    for action in ACTIONS:
        assert action.title
        assert action.help.endswith(".")
        assert action.keys or action.command, action.id


def test_no_key_means_two_things_in_one_place():
    for context in (Context.CHAT, Context.MESSAGE, Context.EMPTY):
        reach = [a for a in ACTIONS if a.context in (context, Context.GLOBAL)]
        doubled = [k for k, n in Counter(k for a in reach for k in a.keys).items() if n > 1]
        assert not doubled, (context, doubled)


def test_keys_spare_those_that_editing_needs_or_terminals_keep():
    taken = {f"ctrl+{c}" for c in "abdefkmsuvwxyz"} | {"f6", "f7"}
    assert not taken & {k for a in ACTIONS for k in a.keys}


def test_commands_are_single_words_and_unique():
    words = [a.command for a in ACTIONS if a.command]
    assert len(words) == len(set(words))
    assert all(w.isalpha() and w.islower() for w in words)


@pytest.mark.parametrize("action", [a for a in ACTIONS if a.command], ids=lambda a: a.command)
def test_a_command_is_read_back(action):
    assert parse_command(f"/{action.command}").action is action
    assert parse_command(f"/{action.command.upper()}  ").action is action
    if action.argument:
        assert parse_command(f"/{action.command}  two words ").argument == "two words"
    else:
        with pytest.raises(CommandError, match="nothing after"):
            parse_command(f"/{action.command} word")
    assert action in matching_commands(f"/{action.command[:2]}")


@pytest.mark.parametrize("text", ["", "hello", " /help", "/home/ada/x.pdf", "/", "//", "/new\nline", "/2", "a /new"])
def test_what_is_no_command_is_a_message(text):
    assert parse_command(text) is None


def test_an_unknown_command_names_the_nearest():
    with pytest.raises(CommandError, match=r"/serch.*did you mean /search"):
        parse_command("/serch words")
    with pytest.raises(CommandError, match=r"/help lists"):
        parse_command("/zzzzz")


@settings(deadline=None)
@given(st.text())
def test_any_text_is_a_command_a_message_or_one_sentence(text):
    sentence, command = "", None
    try:
        command = parse_command(text)
    except CommandError as error:
        sentence = str(error)
    assert "\n" not in sentence
    assert command is None or command.action.command in BY_COMMAND
