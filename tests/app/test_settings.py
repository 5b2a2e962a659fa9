from __future__ import annotations

import os
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import settings as module
from app.option_kinds import Switch
from app.policy import Policy
from app.settings import OPTIONS, Settings, SettingsError, default_threads, load_settings, overridden
from engine.policy import Policy as EnginePolicy


def test_the_defaults_are_allowed():
    settings = load_settings(None, environ={})
    assert settings == Settings()
    assert (settings.window_tokens, settings.page_size, settings.sessions, settings.max_tokens) == (2048, 32, 2, 400)
    for option in OPTIONS:
        value = getattr(settings, option.name)
        if value is not None:
            assert option.read(value) == value


def test_every_field_is_an_option_with_help():
    assert [o.name for o in OPTIONS] == [f.name for f in fields(Settings) if f.name not in ("notices", "constraint")]
    for option in OPTIONS:
        assert option.help.endswith(".")
        assert option.env == "AIOS_CHAT_" + option.name.upper()
        assert option.allowed
        assert option.default


def test_later_places_win(tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text('temperature = 0.5\nseed = 1\ntop_k = 5\nrecall = false\nmodel = "m"\n')
    settings = load_settings(
        file, {"seed": 3, "model": None}, {"AIOS_CHAT_SEED": "2", "AIOS_CHAT_TOP_K": "6", "AIOS_CHAT_THEME": ""}
    )
    assert (settings.temperature, settings.seed, settings.top_k) == (0.5, 3, 6)
    assert (settings.recall, settings.model, settings.theme) == (Switch.OFF, "m", Settings().theme)


def test_a_missing_file_is_no_error(tmp_path):
    assert load_settings(tmp_path / "none.toml", environ={}) == Settings()


def test_the_window_is_rounded_down_to_pages_and_says_so():
    settings = load_settings(None, {"window_tokens": 1000, "page_size": 64}, {})
    assert settings.window_tokens == 960
    assert settings.notices == ("window_tokens 1000 is rounded down to 960, 15 pages of 64 tokens.",)
    assert load_settings(None, {"window_tokens": 960, "page_size": 64}, {}).notices == ()


def test_the_app_and_the_engine_know_the_same_policies() -> None:
    assert [policy.value for policy in Policy] == [policy.value for policy in EnginePolicy]
    assert load_settings(None, {"policy": "Truncate"}, {}).policy is Policy.TRUNCATE


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({"window_tokens": 100}, "window_tokens is 100 on the command line: it must be a whole number of at least 256"),
        ({"window_tokens": 300, "page_size": 128}, "at least 4 pages, 512 tokens"),
        ({"page_size": 48}, "page_size is 48 .*one of 16, 32, 64, 128, 256"),
        ({"page_size": True}, "page_size is True"),
        ({"kv_format": "fp8"}, "kv_format is 'fp8' .*one of auto, full, int8, k8v4, int4, tq3"),
        ({"policy": "lru"}, "policy is 'lru' .*one of round-robin, scored, truncate, recompute"),
        ({"temperature": "hot"}, "temperature is 'hot' .*a number from 0 to 2"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_p": 0}, "top_p is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"recall": "maybe"}, "recall is 'maybe' .*on or off"),
        ({"device": "gpu"}, "device is 'gpu' .*cuda:N"),
        ({"model": " "}, "model is ' '"),
        ({"ocr_languages": "eng chi"}, "ocr_languages .*joined by"),
        ({"temprature": 1}, "no option 'temprature' .*did you mean temperature"),
        ({"min_p": 1}, "min_p is 1"),
        ({"repetition_penalty": 0}, "repetition_penalty is 0"),
        ({"penalty_tokens": 0}, "penalty_tokens is 0"),
        ({"stop": ["a", ""]}, "stop is .*or a list of such texts"),
        ({"banned": [1]}, "banned is "),
        ({"thinking": "perhaps"}, "thinking is 'perhaps' .*on or off"),
        ({"xyzzy": 1}, "no option 'xyzzy' .*the options are model, "),
    ],
)
def test_a_bad_value_costs_one_sentence(overrides, says):
    with pytest.raises(SettingsError, match=says) as caught:
        load_settings(None, overrides, {})
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_the_sentence_says_where_the_value_stands(tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text("top_k = -1\n")
    with pytest.raises(SettingsError, match=r"top_k is -1 in .*settings\.toml: it must be"):
        load_settings(file, environ={})
    with pytest.raises(SettingsError, match="top_k is 'many' in the environment"):
        load_settings(None, environ={"AIOS_CHAT_TOP_K": "many"})


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"top_k = \n", "not valid TOML"), (b"\xff\xfe", "not UTF-8"), (b"[recall]\nx = 1\n", "recall is {'x': 1}")],
)
def test_a_bad_file_costs_one_sentence(tmp_path, content, says):
    file = tmp_path / "settings.toml"
    file.write_bytes(content)
    with pytest.raises(SettingsError, match=says):
        load_settings(file, environ={})
    with pytest.raises(SettingsError, match="cannot be read"):
        load_settings(tmp_path, environ={})


def test_a_strange_variable_is_named():
    settings = load_settings(None, environ={"AIOS_CHAT_TEMPRATURE": "1", "AIOS_CHAT_HOME": "/x"})
    assert settings.notices == (
        "AIOS_CHAT_TEMPRATURE is set in the environment but is not an option; did you mean AIOS_CHAT_TEMPERATURE.",
    )


@given(
    st.sampled_from([o.name for o in OPTIONS]),
    st.text(max_size=20) | st.integers() | st.floats() | st.none() | st.booleans() | st.lists(st.integers()),
)
def test_any_value_is_taken_or_refused_with_a_sentence(name, value):
    sentence = ""
    try:
        settings = load_settings(None, {name: value}, {})
    except SettingsError as error:
        sentence = str(error)
        settings = Settings()
    assert not sentence or name in sentence
    assert settings.window_tokens % settings.page_size == 0


def test_threads_leave_room_for_the_screen(monkeypatch):
    for cores, threads in [(1, 1), (2, 2), (3, 2), (8, 7)]:
        monkeypatch.setattr(module, "_physical_cores", lambda cores=cores: cores)
        assert default_threads() == threads
    monkeypatch.undo()
    assert 1 <= default_threads() <= (os.cpu_count() or 1)


def test_the_system_prompt_ships_and_can_be_replaced():
    assert Settings().system_text()
    assert load_settings(None, {"system_prompt": "Be kind."}, {}).system_text() == "Be kind."


def test_lists_of_texts_are_read_from_every_place(tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text('stop = ["\\n\\n", "END"]\nbanned = "as an AI"\n')
    settings = load_settings(file, environ={"AIOS_CHAT_STOP": "###"})
    assert (settings.stop, settings.banned) == (("###",), ("as an AI",))
    assert load_settings(file, environ={}).stop == ("\n\n", "END")
    assert overridden(settings, {"stop": ["x"], "banned": None, "min_p": 0.1}).stop == ("x",)
    with pytest.raises(SettingsError, match="min_p is 2 on the command line"):
        overridden(settings, {"min_p": 2})


def test_every_setting_of_an_answer_reaches_the_engine():
    given = {
        "temperature": 1.5,
        "top_k": 7,
        "top_p": 0.5,
        "min_p": 0.1,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "penalty_tokens": 99,
        "stop": ("x",),
        "banned": ("y",),
        "seed": 3,
        "max_tokens": 11,
    }
    sampling = load_settings(None, {**given, "end_loops": "off"}, {}).sampling()
    assert {name: getattr(sampling, name) for name in given} == given
    assert not sampling.end_loops
    assert load_settings(None, {}, {}).sampling().end_loops
