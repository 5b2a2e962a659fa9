"""Prices as numbers."""

CURRENCIES = {"€": "EUR", "£": "GBP", "zł": "PLN"}


def normalize_amount(text: str) -> float:
    """A price as a number: "1.299,00 €" is 1299.0. Raises ValueError for a text without digits."""
    digits = text.strip().rstrip("€£zł ").replace(".", "").replace(",", ".")
    return float(digits)


def is_outlier(value: float, median: float) -> bool:
    """Whether a price is more than eight times the median of its product."""
    return value > 8 * median
