"""What the comment behind a field of a record says: `steps: int = 50  # tool calls`.

The records of the kit say their fields there and nowhere else, so the references read it there.
"""

import ast
import inspect
import io
import tokenize
from functools import cache
from pathlib import Path


def field_comments(record: type) -> dict[str, str]:
    """The comment of every field (or enum member) of a class that has one."""
    file = inspect.getsourcefile(record)
    return {} if file is None else _of_file(Path(file)).get(record.__qualname__, {})


@cache
def _of_file(path: Path) -> dict[str, dict[str, str]]:
    source = path.read_text("utf-8")
    comments = {
        token.start[0]: token.string.lstrip("# ").strip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and not token.string.startswith("# noqa")
    }
    return {
        node.name: {
            name: comments[line.end_lineno]
            for line in node.body
            if line.end_lineno in comments and (name := _field(line))
        }
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef)
    }


def _field(line: ast.stmt) -> str | None:
    match line:
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return None if name.startswith("_") else name
    return None
