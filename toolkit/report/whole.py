"""Shares as whole per cent, alike in every form of a report."""


def whole_percent(share: float) -> int:
    """Whole per cent, never rounded up to 100 or down to 0."""
    percent = round(share * 100)
    if percent == 100 and share < 1:
        return 99
    return 1 if percent == 0 and share > 0 else percent
