"""Kill -9 at every write of a promotion: one version or the other is in use, and the next deploy ends it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from deployment.evaluated_runs import content_of, evaluated_run, held_out_tasks, model_double

from dreamgym_kit.adapters.langgraph.deploy import deploy
from dreamgym_kit.deployment.model_files import model_digest
from dreamgym_kit.deployment.model_registry import ModelRegistry
from dreamgym_kit.settings.schema import Settings

SWEEP = """
import json, os, shutil, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from deployment.evaluated_runs import held_out_tasks
from dreamgym_kit.adapters.langgraph.deploy import deploy
from dreamgym_kit.settings.schema import Settings

home, at, code = Path(sys.argv[1]), 0, -9
while code == -9:  # until one came to its end
    at += 1
    shelf = home / "swept" / f"{at:03d}" / "deployed"
    shutil.copytree(home / "deployed", shelf, symlinks=True)
    child = os.fork()
    if not child:
        done = 0

        def hook(event, args):
            global done
            writes = event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR)
            if writes or event in ("os.rename", "os.symlink", "os.remove", "os.truncate"):
                done += str(args[0]).startswith(str(home)) or event in ("os.symlink", "os.truncate")
                if done == at:
                    os.kill(os.getpid(), 9)

        sys.addaudithook(hook)
        try:
            deploy(
                home / "new", evaluated=home / "after", against=home / "before", tasks=held_out_tasks(),
                into=shelf, settings=Settings(graph="agent.py:graph"),
            )
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps([at, code]))
"""


@pytest.mark.slow
def test_a_promotion_killed_at_any_write_leaves_one_version_or_the_other(tmp_path: Path) -> None:
    tasks = held_out_tasks()
    told = {"tasks": tasks, "settings": Settings(graph="agent.py:graph")}
    for name, run, solved in (("old", "before", 1), ("new", "after", 3)):
        digest = model_digest(model_double(tmp_path / name, name))
        evaluated_run(tmp_path / run, tasks, dict.fromkeys((one.id for one in tasks), solved), weights=digest)
    deploy(tmp_path / "old", force="the first one", into=tmp_path / "deployed", **told)

    here = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", SWEEP, str(tmp_path), here], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    points, last = json.loads(done.stdout)
    assert (last, points > 12) == (0, True), (done.stdout, done.stderr)
    compared = {"evaluated": tmp_path / "after", "against": tmp_path / "before"}
    seen = set()
    for folder in sorted((tmp_path / "swept").iterdir()):
        shelf = folder / "deployed"
        with ModelRegistry(shelf) as opened:  # what the next one that comes finds
            assert opened.current is not None
            opened.verified_folder(opened.current)
            seen.add(opened.current.name)
            assert (
                content_of(shelf / "current" / "merged")
                == {"v001": "old", "v002": "new"}[opened.current.name]
            )
        deploy(tmp_path / "new", into=shelf, **compared, **told)
        assert content_of(shelf / "current" / "merged") == "new"
        assert [path.name for path in sorted((shelf / "versions").iterdir())] == ["v001", "v002"]
        assert [path.name for path in shelf.iterdir() if path.name.endswith(".new")] == []
    assert seen == {"v001", "v002"}
