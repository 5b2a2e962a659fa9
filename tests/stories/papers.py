"""Files that a person drops: made here, so that every word in them is known."""

from __future__ import annotations

import io
from pathlib import Path

import pymupdf
from PIL import Image, ImageDraw, ImageFont

TEXT_PAGE = """Quarterly report of the Harbour Museum

The museum counted 18,452 visitors in the second quarter. The director, Petra Lindqvist, thanks the
volunteers. The new exhibition about lighthouses opens on the fourth of October and will stay for one
year. Entrance to the exhibition costs nine euros for adults and is free for children.
"""
SCANNED_PAGE = [
    "Maintenance notes",
    "",
    "The boiler in the cellar was repaired by",
    "Oskar Brandt on the third of May.",
    "The spare key of the cellar hangs behind",
    "the green cupboard.",
]
SCREENSHOT = ["Booking confirmed", "", "Train to Gothenburg", "Seat 42 in coach 7", "Departure at 08:15"]


def picture_of(lines: list[str], size: tuple[int, int] = (1000, 500)) -> Image.Image:
    """Black text on white, as a screenshot or a clean scan has it."""
    image = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(34)
    for number, line in enumerate(lines):
        draw.text((50, 40 + 58 * number), line, fill="black", font=font)
    return image


def write_report(path: Path) -> Path:
    """A PDF of two pages: one of text, one that is only a picture of text."""
    document = pymupdf.open()
    document.new_page().insert_textbox(pymupdf.Rect(60, 60, 540, 780), TEXT_PAGE, fontsize=11)
    picture = io.BytesIO()
    picture_of(SCANNED_PAGE).save(picture, "PNG")
    document.new_page().insert_image(pymupdf.Rect(40, 60, 560, 320), stream=picture.getvalue())
    document.save(path)
    document.close()
    return path


def write_screenshot(path: Path) -> Path:
    """A PNG of a booking."""
    picture_of(SCREENSHOT).save(path)
    return path


def write_encrypted(path: Path) -> Path:
    """A PDF that opens with a password only."""
    document = pymupdf.open()
    document.new_page().insert_text((72, 72), "secret")
    document.save(path, encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw="open sesame", owner_pw="owner")
    document.close()
    return path
