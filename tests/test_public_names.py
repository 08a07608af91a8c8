"""The public face: every name is there, is what it says, and costs nothing until it is used."""

import importlib
import subprocess
import sys

import dreamgym_kit


def test_every_public_name_resolves_and_none_is_hidden_by_a_room_of_that_name() -> None:
    for room in ("dream", "guard", "routing", "report", "rollout", "settings"):
        importlib.import_module(f"dreamgym_kit.{room}")
    for name in dreamgym_kit.__all__:
        value = getattr(dreamgym_kit, name)
        assert callable(value), name


def test_importing_the_kit_pulls_in_no_framework() -> None:
    probe = (
        "import sys, dreamgym_kit; "
        "print(sorted({'langchain_core', 'langgraph', 'pydantic', 'torch', 'openai'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
