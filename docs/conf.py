"""How the pages are built: `sphinx-build -W -n docs build/docs`. The group `docs` is what it needs.

Pages are Markdown, read here and on GitHub alike. The three references are made while building, from the code
itself (`extensions/`), so they cannot be older than it.
"""

import sys
from importlib.metadata import version as version_of
from pathlib import Path

from pygments.lexers import JsonLexer
from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "dreamgym-kit"
author = "the authors of dreamgym-kit"
copyright = author  # noqa: A001  Sphinx asks for it by this name
version = release = version_of("dreamgym-kit")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "command_pages",
    "field_lists",
    "setting_pages",
]
exclude_patterns = ["build", "_build", "extensions", "**/.ipynb_checkpoints"]
nitpicky = True

myst_heading_anchors = 4
myst_enable_extensions = ["fieldlist"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
smartquotes = False  # quotes stand around what is typed
default_role = "code"  # our docstrings put code between single backticks
# Names of other packages have no page here; every name of the kit that is mentioned has to have one.
nitpick_ignore_regex = [("py:.*", r"(?!dreamgym_kit\.).*"), ("py:class", r".*\.T")]

html_theme = "furo"
html_title = f"dreamgym-kit {release}"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_baseurl = ""


def setup(app: Sphinx) -> None:
    """JSON lines are coloured as JSON."""
    app.add_lexer("jsonl", JsonLexer)
