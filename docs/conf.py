"""Build the pages: `sphinx-build -W -n docs build/docs`, with the dependency group `docs`.

Pages are Markdown, readable on GitHub too. The build generates the references of settings, commands and
Python names from the code (`extensions/`).
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
smartquotes = False  # quotes surround what users type
default_role = "code"  # docstrings put code between single backticks
# Names of other packages have no page here; every name of the kit that a page mentions must have one.
nitpick_ignore_regex = [("py:.*", r"(?!dreamgym_kit\.).*"), ("py:class", r".*\.T")]

html_theme = "furo"
html_title = f"dreamgym-kit {release}"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_baseurl = ""


def setup(app: Sphinx) -> None:
    """Color JSON Lines as JSON."""
    app.add_lexer("jsonl", JsonLexer)
