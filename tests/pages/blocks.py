"""The two blocks of data in a page, as the script reads them."""

import base64
import gzip
import json
import re
from collections.abc import Sequence
from typing import Any


def blocks(html: str) -> tuple[Any, Any]:
    """Both as plain JSON."""
    found = re.findall(r'<script type="application/json" id="([\w-]+)">(.*?)</script>', html, re.DOTALL)
    assert [name for name, _ in found] == ["data-report", "data-episodes"]
    return json.loads(found[0][1]), json.loads(found[1][1])


def unpacked(html: str) -> Sequence[Any]:
    """Every episode's steps, in the order of the page."""
    chunks = blocks(html)[1]["chunks"]
    texts = [gzip.decompress(base64.b64decode(chunk, validate=True)) for chunk in chunks]
    return [detail for text in texts for detail in json.loads(text)]
