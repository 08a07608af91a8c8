"""Draws docs/images/demo.svg from what `dreamgym-kit demo` really prints.

python docs/pictures.py
"""

import io
import os
import subprocess
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

IMAGE = Path(__file__).parent / "images" / "demo.svg"
WIDTH = 84


def main() -> None:
    """Run the demo in an empty folder and draw its standard output."""
    environment = {**os.environ, "COLUMNS": str(WIDTH), "FORCE_COLOR": "1"}
    with tempfile.TemporaryDirectory() as folder:
        command = ["dreamgym-kit", "demo", "--keep", "demo"]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=True
        )
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi("$ dreamgym-kit demo\n" + done.stdout))
    IMAGE.parent.mkdir(exist_ok=True)
    console.save_svg(str(IMAGE), title="dreamgym-kit demo")


if __name__ == "__main__":
    main()
