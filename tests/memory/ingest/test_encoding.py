"""Texts in every encoding, wherever in a file it shows."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from memory.ingest.encoding import decode
from tests.memory.ingest.reading import read

_ASCII = "".join(f"line {number} of a log that says nothing new\n" for number in range(14_000))
_TEXTS = {
    "latin-1": "Größe und Länge prüfen, dann Grüße an Jürgen und die Mädchen schön übermitteln.\n",
    "cp1252": "Le garçon a mangé une crêpe à l’école près de la forêt où l’été s’achève.\n",
    "cp1251": "Мы вчера обсуждали устройство базы данных и её индексов, а завтра поедем на дачу.\n",
    "koi8-r": "Мы вчера обсуждали устройство базы данных и её индексов, а завтра поедем на дачу.\n",
    "gb18030": "我们昨天讨论了数据库的索引结构，明天去看新的房子。\n今天天气很好，我们去公园散步。\n",
    "big5": "我們昨天討論了資料庫的索引結構，明天去看新的房子。\n今天天氣很好，我們去公園散步。\n",
    "shift_jis": "昨日はデータベースの索引について話しました。明日は新しい家を見に行きます。\n",
    "euc_jp": "昨日はデータベースの索引について話しました。明日は新しい家を見に行きます。\n",
    "euc_kr": "어제 우리는 데이터베이스의 색인 구조에 대해 이야기했습니다. 내일은 새 집을 보러 갑니다.\n",
}


@pytest.mark.parametrize("encoding", _TEXTS)
@pytest.mark.parametrize("before", ["", _ASCII], ids=["alone", "after much ASCII"])
def test_the_encoding_is_judged_by_what_is_not_ascii(encoding: str, before: str) -> None:
    text = before + _TEXTS[encoding] * 3
    assert decode(text.encode(encoding), "a.txt") == text


_LANGUAGES = {
    "Polish": ("Proszę przesłać fakturę do końca miesiąca. Dziękuję bardzo.", "cp1250 iso8859_2"),
    "Polish pangram": ("Zażółć gęślą jaźń. Książka leży na półce obok okna.", "cp1250 iso8859_2"),
    "Czech": ("Příliš žluťoučký kůň úpěl ďábelské ódy. Včera jsme šli k řece.", "cp1250 iso8859_2"),
    "Hungarian": ("Árvíztűrő tükörfúrógép. Kérem, küldje el a számlát hónap végéig.", "cp1250 iso8859_2"),
    "Romanian": ("Vă rog să trimiteţi factura până la sfârşitul lunii.", "cp1250 iso8859_2"),
    "Turkish": ("Lütfen faturayı ay sonuna kadar gönderin. Dün akşam hava sıcaktı.", "cp1254"),
    "French": ("Le garçon a mangé une pâtisserie à Noël, où il faisait très froid.", "cp1252"),
    "Spanish": ("¿Dónde está el niño? Comió piña en la montaña mañana.", "cp1252"),
    "Swedish": ("I går kväll gick vi till ån eftersom det var varmt.", "cp1252"),
    "Russian": ("Пожалуйста, пришлите счёт до конца месяца. Было тепло.", "cp1251 koi8_r"),
    "Ukrainian": ("Будь ласка, надішліть рахунок до кінця місяця.", "cp1251 koi8_u"),
    "Greek": ("Παρακαλώ στείλτε το τιμολόγιο μέχρι το τέλος του μήνα.", "cp1253 iso8859_7"),
    "Hebrew": ("אתמול בערב הלכנו לנהר כי היה חם. אנא שלחו את החשבונית עד סוף החודש.", "cp1255"),
    "Arabic": ("يرجى إرسال الفاتورة قبل نهاية الشهر.", "cp1256"),
    "Chinese": ("请在月底之前把发票寄给我们。昨天天气很暖和。", "gb18030 gbk"),
    "traditional Chinese": ("請在月底之前把發票寄給我們。昨天天氣很暖和。", "big5"),
    "Japanese": ("月末までに請求書を送ってください。昨日は暖かかったです。", "shift_jis euc_jp"),
    "Korean": ("월말까지 청구서를 보내 주세요. 어제는 날씨가 따뜻했습니다.", "euc_kr cp949"),
}


@pytest.mark.parametrize("times", [1, 20])
@pytest.mark.parametrize(
    ("text", "encoding"),
    [(text, encoding) for text, encodings in _LANGUAGES.values() for encoding in encodings.split()],
)
def test_a_sentence_in_any_language_and_the_code_pages_it_is_written_in(text: str, encoding: str, times: int) -> None:
    wanted = f"{text}\n" * times
    assert decode(wanted.encode(encoding), "a.txt") == wanted


@pytest.mark.parametrize("words", ["Grüße", "café", "naïve Straße"])
def test_one_western_word_after_much_ascii(words: str) -> None:
    text = _ASCII + words
    assert decode(text.encode("latin-1"), "a.txt") == text


@pytest.mark.parametrize(
    "text",
    ["Grüße aus Köln, schön war’s. " * 3, "我们昨天讨论了数据库的索引结构。" * 4, "Мы вчера обсуждали базу. ", "é à "],
)
def test_a_stray_byte_spoils_nothing_but_itself(text: str) -> None:
    data = text.encode()
    for at in (0, len(data)):
        for stray, shown in ((b" caf\xe9 ", " café "), (b" \x93x\x94 ", " “x” ")):
            assert decode(data[:at] + stray + data[at:], "a.txt") == (shown + text if at == 0 else text + shown)


def test_a_text_cut_inside_a_character() -> None:
    text = "数据库的索引结构。"
    for cut in (1, 2):
        assert decode(text.encode()[:-cut], "a.txt").startswith(text[:-1])


def test_strays_anywhere_are_mended() -> None:
    chance = random.Random(5)
    words = ["Größe", "house", "naïve", "Straße", "river"]
    chosen = [chance.choice(words) for _ in range(40_000)]
    data = b" ".join(word.encode("latin-1" if chance.random() < 0.01 else "utf-8") for word in chosen)
    assert decode(data, "a.txt") == " ".join(chosen)


def test_lines_are_an_editors_lines(tmp_path: Path) -> None:
    source = "import os\n\f\n\fdef reach():\f\n    return os.sep\n\n\x0b\n# a\u2028b\x85c\fd\nclass Walk:\n    pass\n"
    for name in ("a.py", "a.txt", "a.md", "a.nim"):
        file = tmp_path / name
        file.write_text(source, encoding="utf-8")
        for section in read(file).sections:
            assert section.line is not None
            for number, line in enumerate(section.text.rstrip("\n").split("\n"), start=section.line):
                assert line.split() == source.split("\n")[number - 1].split()
    walk = next(section for section in read(tmp_path / "a.py").sections if section.heading == "Walk")
    assert walk.line == 7
