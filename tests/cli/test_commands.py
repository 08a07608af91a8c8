"""The way of a user: init, doctor, record, simulate, report; through the installed command."""

import json
import os
import pty
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from each_row import each_row

from dreamgym_kit.cli.approving import confirm
from dreamgym_kit.cli.output import can_ask
from dreamgym_kit.errors import UserError

FLAGS = ("agent:graph", "--tasks", "tasks.jsonl")


def test_a_dream_runs_nothing_real_and_says_what_it_would_have_done(run, recorded: Path) -> None:
    done = run("simulate", *FLAGS, "-n", "2")
    assert done.returncode == 1, done.stderr
    assert not (recorded / "REAL").exists()
    assert done.stdout.startswith("FAILED  0 passed, 4 failed, 0 inconclusive, 0 errors\n")
    assert "  Pass rate     0% of 2 tasks x 2 repeats (95% CI 0-66%, by task)\n" in done.stdout
    assert "  Real calls    0 executed, 0 blocked, of 12 tool calls\n" in done.stdout
    assert "  Side effects  simulated: refund_payment 8" in done.stdout
    assert "  Findings      4 critical: repeated_write in refund-1.1, call 3\n" in done.stdout
    assert " Look     dreamgym-kit report runs/" in done.stdout
    assert "4/4  0 passed, 4 failed, 0 inconclusive" in done.stderr


def test_json_is_all_there_is_on_stdout(run, recorded: Path) -> None:
    done = run("simulate", *FLAGS, "--json")
    said = json.loads(done.stdout)
    assert said["counts"] == {"passed": 0, "failed": 2, "inconclusive": 0, "errors": 0}
    assert said["calls"] == {"total": 6, "real": 0, "executed": 0, "unanswered": 0}
    assert (said["verdict"], said["exit_code"], done.returncode) == ("failed", 1, 1)
    written = json.loads(next((recorded / "runs").glob("*/report.json")).read_text())
    assert written["schema"] == said["schema"]


def test_without_recordings_the_dream_says_that_it_knows_nothing(run, project: Path) -> None:
    done = run("simulate", *FLAGS)
    assert done.returncode == 3
    assert "holds no recordings yet" in done.stderr
    assert done.stdout.startswith("INCONCLUSIVE  0 passed, 0 failed, 2 inconclusive, 0 errors\n")
    assert "  gate max_inconclusive: 100% of episodes, at most 10% allowed\n" in done.stdout
    assert f"  dreamgym-kit record {' '.join(FLAGS)}\n" in done.stdout
    assert not (project / "REAL").exists()


REACHES = 'getattr(__import__("soc" + "ket"), "create_connection")(("192.0.2.1", 80), 1)'


@each_row(
    ("acts", "said"),
    [
        (
            REACHES,
            [
                "FAILED 0 passed, 0 failed, 2 inconclusive, 0 errors",
                "gate real_calls: 0 executed, 2 blocked, none allowed",
            ],
        ),
        ("os._exit(0)", ["FAILED"]),
    ],
    ids=["reaches a host", "ends the process"],
)
def test_a_node_that_acts_by_itself_is_exit_code_1(run, project: Path, acts: str, said: list[str]) -> None:
    plain = (project / "agent.py").read_text()
    (project / "agent.py").write_text(
        plain.replace("def agent(state):\n", f"def agent(state):\n    {acts}\n")
    )
    done = run("simulate", *FLAGS)
    (project / "agent.py").write_text(plain)
    assert done.returncode == 1, done.stdout + done.stderr
    told = " ".join(done.stdout.split())
    assert told.startswith(said[0])
    assert all(one in told for one in said)


def test_closed_standard_streams_are_like_the_null_device(command: str, environment, project: Path) -> None:
    for closed in ("<&-", "<&- >&-"):
        line = f"{command} record {' '.join(FLAGS)} {closed}"
        done = subprocess.run(
            ["bash", "-c", line], cwd=project, env=environment, capture_output=True, text=True
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert "there is no terminal to ask at" in done.stderr


def test_nobody_is_asked_in_ci_even_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", TerminalDouble())
    monkeypatch.delenv("CI", raising=False)
    assert can_ask()
    monkeypatch.setenv("CI", "1")
    assert not can_ask()
    with pytest.raises(UserError, match="nobody to ask in CI; agree with --yes"):
        confirm("Run them?", "record runs real tools", yes=False)


class TerminalDouble:
    def isatty(self) -> bool:
        return True


def test_record_asks_and_without_a_terminal_it_does_not_run(run, project: Path) -> None:
    done = run("record", *FLAGS)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "2 episodes will run on the REAL tools. What these can do:\n"
        "  destructive  refund_payment?\n"
        "  read         get_order?\n"
        "  (? is a guess; dreamgym-kit init writes them down to correct)\n"
        "error: record runs real tools, and there is no terminal to ask at; "
        "agree with --yes. Nothing was run.\n"
    )
    assert not (project / "REAL").exists()
    assert not (project / "dreamgym.db").exists()


@each_row(("reply", "code", "ran"), [(b"n\n", 2, False), (b"y\n", 0, True)])
def test_record_goes_on_only_when_a_person_agrees(
    project: Path, environment: dict[str, str], command: str, reply: bytes, code: int, ran: bool
) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, reply)
    done = subprocess.run(
        [command, "record", *FLAGS],
        cwd=project,
        env=environment,
        stdin=theirs,
        capture_output=True,
        check=False,
    )
    os.close(ours)
    os.close(theirs)
    assert done.returncode == code, done.stderr
    assert b"Run them? [y/N]" in done.stderr
    assert (project / "REAL").exists() is ran


def test_record_keeps_every_call(run, project: Path) -> None:
    done = run("record", *FLAGS, "--yes")
    assert done.returncode == 0, done.stderr
    assert (project / "REAL").read_text() == "xxxx"
    assert done.stdout.startswith("RECORDED  0 passed, 2 failed, 0 inconclusive, 0 errors\n")
    assert "  Real calls    6 of 6 tool calls, as asked\n" in done.stdout
    assert f" 6 calls added to {project / 'dreamgym.db'}\n" in done.stdout
    (dream,) = [line for line in done.stdout.splitlines() if line.startswith(" Dream ")]
    again = run(*shlex.split(dream.partition("dreamgym-kit ")[2].partition("  ")[0]))
    assert again.returncode == 1, again.stderr  # as on the real tools, both tasks fail


@pytest.mark.slow
def test_a_crawl_says_what_it_will_call_and_calls_only_what_is_known_to_read(run, project: Path) -> None:
    refused = run("crawl", "agent:graph", "--yes")
    assert refused.returncode == 2
    assert "get_order: that it reads is only a guess" in refused.stderr
    (project / "dreamgym.toml").write_text('graph = "agent:graph"\n[tools.get_order]\neffect = "read"\n')
    (project / "ids.txt").write_text("A-1\nA-2\n")
    asked = run("crawl", "--ids", "ids.txt")
    assert asked.returncode == 2
    assert "These REAL tools will be called, at most 1000 times, 5 a second; nothing else" in asked.stderr
    assert "  read   get_order\n" in asked.stderr
    assert "agree with --yes. Nothing was run." in asked.stderr
    assert not (project / "dreamgym.db").exists()
    done = run("crawl", "--ids", "ids.txt", "--yes", "--max-calls", "1", "--json")
    assert json.loads(done.stdout)["by_tool"] == {"get_order": 1}
    assert json.loads(done.stdout)["stopped"] == "the budget of 1 calls"
    rest = run("crawl", "--ids", "ids.txt", "--yes", "--rate", "0")
    assert " 0 of them the tools refused, 1 were there from before; " in rest.stdout
    assert not (project / "REAL").exists()
    with (project / "dreamgym.toml").open("a") as file:
        file.write('[environments.shop]\nref = "agent:Shop"\n')
    slip = run("crawl", "--environment", "shp", "--yes")
    assert slip.returncode == 2
    assert (
        "--environment: environment 'shp' is not in [environments] and the tasks; did you mean 'shop'?"
        in slip.stderr
    )


def test_init_writes_settings_that_the_other_commands_use(run, project: Path) -> None:
    done = run("init", "agent:graph", "--tasks", "tasks.jsonl")
    assert done.returncode == 0, done.stderr
    assert "  destructive  refund_payment?\n" in done.stdout
    written = (project / "dreamgym.toml").read_text()
    assert 'refund_payment = "destructive?"\n' in written
    assert run("simulate").returncode == 3  # nothing is recorded


def test_init_renames_old_keys_keeps_comments_and_a_copy(run, project: Path) -> None:
    old = 'graph = "a:b"\n[simulate]  # often\nn = 4\n[engine]\nworkers = 2\n[judge]\nx = 1\n[gate]\ny = 1\n'
    (project / "dreamgym.toml").write_text(old)
    refused = run("doctor")
    assert (refused.returncode, refused.stdout.count(" is now ")) == (2, 2)
    done = run("init", "--update")
    assert done.returncode == 0, done.stderr
    assert "simulate.n -> simulate.repeats" in done.stdout
    assert done.stdout.count("   dreamgym.toml:") == 2, "of all that is still wrong, the place"
    now = (project / "dreamgym.toml").read_text()
    assert now == old.replace("n = 4", "repeats = 4").replace("[engine]\nworkers", "[workers]\ncount")
    assert (project / "dreamgym.toml.old").read_text() == old


def test_init_leaves_an_existing_file_alone_unless_asked_to_update_it(run, refusal, project: Path) -> None:
    before = '[tools.refund_payment]\neffect = "write"\n'
    (project / "dreamgym.toml").write_text(before)
    assert "is there already and was left alone; --update keeps what it says" in refusal(
        "init", "agent:graph"
    )
    assert (project / "dreamgym.toml").read_text() == before
    assert run("init", "agent:graph", "--update").returncode == 0
    written = (project / "dreamgym.toml").read_text()
    assert '[tools.refund_payment]\neffect = "write"\n' in written
    assert '[tools.get_order]\neffect = "read"\nguessed = true\n' in written
    assert written.startswith('graph = "agent:graph"\n')


def test_init_adds_tools_in_place_and_keeps_comments(run, project: Path) -> None:
    before = '# ours\ngraph = "agent:graph"\n\n[tools]  # seen by ann\nrefund_payment = "write"  # sure\n'
    (project / "dreamgym.toml").write_text(before)
    assert run("init", "--update").returncode == 0
    now = (project / "dreamgym.toml").read_text()
    assert '\n[tools]  # seen by ann\nget_order = "read?"\nrefund_payment = "write"  # sure\n' in now
    assert "# ours\n" in now
    assert run("init", "--confirm").returncode == 0
    assert '\nget_order = "read"\n' in (project / "dreamgym.toml").read_text()
    assert run("init", "--all-settings").returncode == 0
    assert "# repeats = 1  # episodes per task\n" in (project / "dreamgym.reference.toml").read_text()


def test_doctor_says_what_to_mend_and_what_stops(run, project: Path, recordings: Path) -> None:
    empty = run("doctor", *FLAGS)
    assert empty.returncode == 2
    assert "simulate would be INCONCLUSIVE" in " ".join(empty.stdout.split())
    assert "\n Record   dreamgym-kit record agent:graph --tasks tasks.jsonl" in empty.stdout
    for file in recordings.parent.glob("dreamgym.db*"):
        shutil.copy(file, project)
    done = run("doctor", *FLAGS)
    assert done.returncode == 0
    assert " ok    graph       agent:graph imports; 2 tools, all can be simulated\n" in done.stdout
    assert " fix   effects     2 guessed: get_order (read), refund_payment (destructive)\n" in done.stdout
    assert " 0 to stop, 2 to fix.\n" in done.stdout
    assert "\n Begin    dreamgym-kit init agent:graph" in done.stdout
    broken = run("doctor", "agent:nothing", *FLAGS[1:], "--json")
    assert broken.returncode == 2
    said = json.loads(broken.stdout)
    assert [check["name"] for check in said["checks"] if check["level"] == "stop"] == ["graph"]


WORLD = """from pathlib import Path
class Shop:
    def __init__(self): Path(__file__).with_name("MADE").touch()
    def configurable(self, world, episode): return {}
    async def reset(self, world, episode): pass
"""


def test_doctor_makes_a_world_as_a_dry_run_does_and_holds_it_against_what_a_run_needs(
    run, recorded: Path
) -> None:
    project = recorded
    (project / "dreamgym.toml").write_text('[environments.default]\nref = "shop_world:Shop"\n')
    (project / "shop_world.py").write_text(WORLD)
    lacking = run("doctor", *FLAGS)
    assert lacking.returncode == 2
    assert "'shop_world:Shop' has no close()." in " ".join(lacking.stdout.split())
    (project / "shop_world.py").write_text(WORLD + "    async def close(self, episode): pass\n")
    touching = run("doctor", *FLAGS)  # as simulate, which makes it, too
    assert touching.returncode == 2
    assert "'shop_world:Shop' raised RealCallBlocked when it was made: " in " ".join(touching.stdout.split())
    assert run("simulate", *FLAGS).returncode == 2
    assert not (project / "MADE").exists()
    (project / "shop_world.py").write_text(
        (project / "shop_world.py").read_text().replace("__init__", "made")
    )
    assert run("doctor", *FLAGS).returncode == 0
    with (project / "shop_world.py").open("a") as file:
        file.write('Path(__file__).with_name("MADE").touch()\n')
    touching = run("doctor", *FLAGS)
    assert touching.returncode == 2
    assert "importing shop_world: refused to " in " ".join(touching.stdout.split())


def test_report_shows_the_run_its_episodes_and_one_of_them(run, refusal, recorded: Path) -> None:
    run("simulate", *FLAGS, "-n", "2")
    whole, listed = run("report"), run("report", "--list")
    one, all_json = run("report", "--episode", "refund-1.2"), run("report", "--json")
    assert "FAILED  0 passed, 4 failed, 0 inconclusive, 0 errors\n" in whole.stdout
    assert " refund-1.1  failed        step 3  ! refund_payment A-1 called twice\n" in listed.stdout
    assert listed.stdout.count(" failed ") == 4
    assert one.stdout.startswith(' refund-1.2  "Please refund A-1"\n')
    assert "      the same call as step 2\n" in one.stdout
    assert json.loads(all_json.stdout)["counts"]["failed"] == 4
    assert "episode 'refund-1.3' is not in the run; did you mean 'refund-1.2'?" in refusal(
        "report", "--episode", "refund-1.3"
    )


@pytest.mark.slow
def test_what_a_command_says_to_do_next_can_be_pasted(run, recorded: Path) -> None:
    said = run("simulate", *FLAGS).stdout
    commands = [
        line[10:].split("   ")[0] for line in said.splitlines() if line[9:].startswith(" dreamgym-kit ")
    ]
    assert len(commands) == 2
    for command in commands:
        assert run(*shlex.split(command)[1:]).returncode == 0, command


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error(
    run, recorded: Path, environment: dict[str, str], command: str
) -> None:
    run("simulate", *FLAGS, "-n", "20")
    piped = f"{shlex.quote(command)} report --json | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", piped], cwd=recorded, env=environment, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("0\n", "")


@pytest.mark.slow
def test_what_the_agent_prints_stays_out_of_the_json(run, recorded: Path) -> None:
    with (recorded / "agent.py").open("a") as file:
        file.write("\nprint('told while imported')\nwrite = os.write\n")
        file.write(
            "def once(outcome):\n    print('told while run')\n    return bool(write(1, b'told below'))\n"
        )
    done = run("simulate", "agent:graph", "--tasks", "tasks.jsonl", "--json")
    assert json.loads(done.stdout)["counts"]
    assert [word in done.stderr for word in ("while imported", "while run", "told below")] == [True] * 3


def test_confirming_finds_every_guess_and_keeps_the_rest_to_the_byte(project: Path, run) -> None:
    """Doctor names this command for a guess in any form; a file from Windows keeps its line ends."""
    before = (
        b'graph = "agent:graph"\r\n# mine \xc3\xa9\r\n'
        b'[tools]\r\nget_order = { effect = "read", guessed = true }\r\n'
        b'[tools.refund_payment]\r\neffect = "destructive"\r\nguessed = true  # not sure\r\n'
    )
    after = (
        b'graph = "agent:graph"\r\n# mine \xc3\xa9\r\n'
        b'[tools]\r\nget_order = { effect = "read"  }\r\n'
        b'[tools.refund_payment]\r\neffect = "destructive"\r\n'
    )
    (project / "dreamgym.toml").write_bytes(before)
    done = run("init", "--confirm")
    assert done.returncode == 0, done.stderr
    assert " 2 effects in dreamgym.toml are no longer guesses." in done.stdout
    assert (project / "dreamgym.toml").read_bytes() == after
