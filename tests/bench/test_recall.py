"""The recall benchmark on question sets made here: what it counts is counted right."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.recall import cast, documents, latency, locomo


def write_locomo(folder: Path) -> None:
    talk = {
        "speaker_a": "Ada",
        "speaker_b": "Ben",
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            {"speaker": "Ada", "dia_id": "D1:1", "text": "My parrot Quill learned to whistle."},
            {"speaker": "Ben", "dia_id": "D1:2", "text": "Funny!", "blip_caption": "a bassoon on a chair"},
        ],
        "session_2_date_time": "9:00 am on 1 June, 2023",
        "session_2": [{"speaker": "Ben", "dia_id": "D2:1", "text": "I sold the sailing boat to a dentist."}],
    }
    qa = [
        {"question": "What did the parrot learn?", "evidence": ["D1:1"], "category": 4},
        {"question": "Where is the bassoon?", "evidence": ["D1:2; D9:9"], "category": 1},
        {"question": "No evidence is given", "evidence": [], "category": 3},
    ]
    (folder / locomo.FILE).write_text(json.dumps([{"sample_id": "c1", "conversation": talk, "qa": qa}]))


def write_paragraphs(file: Path, *pairs: tuple[str, str]) -> None:
    paragraphs = [{"context": text, "qas": [{"question": question}]} for text, question in pairs]
    file.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))


def test_evidence_is_counted_by_turn_neighbour_and_session(tmp_path: Path) -> None:
    write_locomo(tmp_path)
    messages = locomo.messages_of(json.loads((tmp_path / locomo.FILE).read_text())[0]["conversation"], "c1")
    assert [(m.id, m.parent) for m in messages] == [("D1:1", None), ("D1:2", "D1:1"), ("D2:1", "D1:2")]
    assert messages[1].text == "Ben: Funny! [photo: a bassoon on a chair]"
    assert messages[2].time - messages[0].time > 20 * 86400
    assert locomo.measure(tmp_path) == {
        "locomo_turn_r10": 100.0,
        "locomo_turn_r25": 100.0,
        "locomo_turn_r10_pm1": 100.0,
        "locomo_session_r5": 100.0,
    }


def test_paragraphs_are_files_and_the_answering_one_counts(tmp_path: Path) -> None:
    lamp, whale = "The lamp in the hall is green.", "Whales sleep upright near the surface."
    # The last question is asked of the wrong paragraph: half is found first, all of it among five.
    write_paragraphs(tmp_path / documents.XQUAD, (lamp, "What colour is the lamp?"), (whale, "Where hangs the lamp?"))
    assert documents.measure_xquad(tmp_path) == {"xquad_r1": 50.0, "xquad_r5": 100.0}


def test_recall_is_timed_over_as_many_chunks_as_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_locomo(tmp_path)
    monkeypatch.setattr(latency, "SIZES", {"few": 500, "more": 1000})
    figures = latency.measure(tmp_path)
    assert figures.keys() == {"recall_p95_ms_few", "recall_p95_ms_more"}
    assert all(value > 0.0 for value in figures.values())


@pytest.mark.parametrize(
    ("asked", "full", "added"),
    [
        ("What are its symptoms?", "What are lung cancer's symptoms?", ["lung", "cancer"]),
        ("Does melatonin help?", "Does melatonin help with jet lag?", ["jet", "lag"]),
        ("Who is it?", "Who is he?", []),
    ],
)
def test_what_a_follow_up_leaves_out(asked: str, full: str, added: list[str]) -> None:
    assert cast._longest_addition(asked, full) == added


def test_a_set_that_is_not_there_is_skipped_with_a_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.bench.recall", str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "xquad: skipped, xquad.en.json not in" in said
    assert "latency: skipped" in said
