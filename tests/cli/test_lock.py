"""`dreamgym.lock` on the command line: who writes it, and what a tool that came later does to a run."""

from pathlib import Path

import pytest

BASE = ("simulate", "agent:graph", "--tasks", "tasks.jsonl")
MORE = "@tool\ndef wipe(order_id: str) -> str:\n    'Wipe.'\n    return ''\n\n\ndef held"


def change(project: Path) -> None:
    """Give the agent one more tool and another argument."""
    text = (project / "agent.py").read_text()
    text = text.replace("def held", MORE, 1).replace("[get_order, refund", "[wipe, get_order, refund")
    (project / "agent.py").write_text(text.replace("get_order(order_id: str)", "get_order(order_id: int)"))


@pytest.mark.slow
def test_init_writes_it_and_a_changed_agent_is_refused_until_it_is_updated(recorded: Path, run) -> None:
    assert run("init", "agent:graph", CI="").returncode == 0
    lock = recorded / "dreamgym.lock"
    names = [line.split(" = ")[0] for line in lock.read_text().splitlines() if "digest" in line]
    assert names == ["get_order", "refund_payment"]
    assert run(*BASE, CI="true").returncode == 1  # its tasks fail
    change(recorded)
    for ci in ("true", ""):
        refused = run(*BASE, CI=ci)
        assert refused.returncode == 2
        assert "+ wipe: new, destructive (guess)" in refused.stderr
        assert "~ get_order: schema or annotations" in refused.stderr
        assert "dreamgym-kit init --update" in refused.stderr
    assert "wipe" not in lock.read_text()
    assert run("doctor").returncode == 2
    assert run("init", "--update").returncode == 0
    assert run(*BASE, CI="true").returncode != 2
    assert run("init", "--confirm").returncode == 0
    assert lock.read_text().count('decided_by = "user"') == 3
    assert " Correct " not in run("init", "--update").stdout  # no guess is left


@pytest.mark.slow
def test_a_tool_of_the_project_that_settings_name_is_known(recorded: Path, run) -> None:
    assert run("init", "agent:graph", CI="").returncode == 0
    text = (recorded / "agent.py").read_text()
    (recorded / "agent.py").write_text(
        text.replace("def held", MORE, 1).replace("[get_order, refund", "[wipe, get_order, refund")
    )
    assert run(*BASE, CI="true").returncode == 2
    with (recorded / "dreamgym.toml").open("a") as settings:
        settings.write('\n[tools.wipe]\neffect = "destructive"\n')
    assert run(*BASE, CI="true").returncode == 1  # its tasks fail
    assert "wipe" not in (recorded / "dreamgym.lock").read_text()
    assert run(*BASE, CI="").returncode == 1
    assert "wipe" in (recorded / "dreamgym.lock").read_text()


@pytest.mark.slow
def test_a_first_run_writes_it_but_not_in_ci(recorded: Path, run) -> None:
    (recorded / "dreamgym.toml").write_text("")
    lock = recorded / "dreamgym.lock"
    in_ci = run(*BASE, CI="true")
    assert "dreamgym.lock has no tools of agent:graph; 2 guessed effects hold for this run" in " ".join(
        (in_ci.stdout + in_ci.stderr).split()
    )
    assert not lock.exists()
    assert run(*BASE, CI="").returncode == in_ci.returncode
    assert lock.exists()
