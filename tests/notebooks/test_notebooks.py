"""The notebooks of the documentation run from top to bottom, and none holds the outputs of somebody's run."""

import shutil
import tempfile
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from traitlets.config import Config

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))
named = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path: Path) -> nbformat.NotebookNode:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@named
def test_a_notebook_is_kept_without_outputs(path: Path) -> None:
    for cell in read(path).cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None), cell.source
        assert cell.metadata == {}


@pytest.mark.slow
@named
def test_a_notebook_runs_and_shows_its_report(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sockets = tempfile.mkdtemp(prefix="dg")  # short, as their paths have to be; ports may be given to others
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    notebook = read(path)
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        config=Config(KernelManager={"transport": "ipc", "ip": f"{sockets}/kernel"}),
        timeout=600,
        startup_timeout=600,
        resources={"metadata": {"path": tmp_path}},
    )
    try:
        client.execute()  # raises with the cell and its error
    finally:
        shutil.rmtree(sockets)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert [one for one in outputs if one.output_type == "stream" and one.name == "stderr"] == []
    (shown,) = [one.data for one in outputs if "text/html" in one.get("data", {})]
    assert 'src="data:text/html;charset=utf-8;base64,' in shown["text/html"]
    assert "PASSED" in shown["text/html"]
    assert "0 executed, 0 blocked, of 8 tool calls" in shown["text/plain"]
