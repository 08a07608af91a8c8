"""A program that starts as Weaviate's binary does, and serves the double."""

import stat
import sys
from pathlib import Path

BINARY = """#!{python}
import json, os, pickle, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # in all threads: waited for below
sys.path.insert(0, {tests!r})
from weaviate_double import WeaviateDouble
seen = {{name: os.environ.get(name) for name in ("DISABLE_TELEMETRY", "OPENAI_API_KEY")}}
with open(os.environ["PERSISTENCE_DATA_PATH"] + ".json", "w") as file:
    json.dump([sys.argv[1:], seen], file)
double = WeaviateDouble.__new__(WeaviateDouble)
port = int(sys.argv[sys.argv.index("--port") + 1])
WeaviateDouble.start, start = lambda self: None, WeaviateDouble.start
double.__init__(key=os.environ["AUTHENTICATION_APIKEY_ALLOWED_KEYS"])
double._ports = (port, int(os.environ["GRPC_PORT"]))
kept = os.environ["PERSISTENCE_DATA_PATH"] + ".pickle"
if os.path.exists(kept):
    with open(kept, "rb") as file:
        for table, rows in pickle.load(file).items():
            getattr(double.state, table).update(rows)
start(double)
signal.sigwait([signal.SIGTERM])
with open(kept, "wb") as file:
    tables = "schema", "tenants", "items"
    pickle.dump({{table: dict(getattr(double.state, table)) for table in tables}}, file)
os._exit(0)  # its clients have ended; a thread that still serves one need not be waited for
"""


def binary_double(folder: Path) -> Path:
    """A program that starts as Weaviate's does and serves the double; its rows are there again next time."""
    program = folder / "weaviate"
    program.write_text(BINARY.format(python=sys.executable, tests=str(Path(__file__).parents[1])))
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    return program
