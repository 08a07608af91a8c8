"""A double of the program `vllm`: its routes as far as starting and stopping look at them, in two processes.

What it does is asked by the model's name: "dies", "sleeps" (is never ready), "deaf" (does not go when asked),
"late" (its page does not say yet what runs). A request lasts until the server drains and was then looked at
`x-looks` times.
"""

import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

RUNNING: list[float] = []
LATE: list[bool] = []
LOOKS: list[str] = []


class Routes(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        LOOKS.append(self.path)
        told = 0.0 if LATE else float(len(RUNNING))
        pages = {
            "/metrics": f'vllm:num_requests_running{{engine="0"}} {told}\nvllm:num_requests_waiting 0.0\n',
            "/dreamgym/under-way": json.dumps({"under_way": len(RUNNING)}),
        }
        self.answer(pages.get(self.path, ""))

    def do_POST(self) -> None:
        RUNNING.append(0.0)
        try:
            while not Path(os.environ["DREAMGYM_DRAINING"]).exists():
                time.sleep(0.02)
            enough = len(LOOKS) + int(self.headers["x-looks"])
            while len(LOOKS) < enough:
                time.sleep(0.02)
            self.answer(json.dumps({"whole": True}))
        finally:  # once it is answered: who is told that nothing runs may end this
            RUNNING.pop()

    def answer(self, text: str) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *told: object) -> None:
        pass


def main() -> None:
    line = sys.argv[1:]
    model, port = line[1].rpartition("/")[2], int(line[line.index("--port") + 1])
    engine = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print("engine", engine.pid, "key", "VLLM_API_KEY" in os.environ, flush=True)
    if model == "dies":
        print("ValueError: no common block size for 16", flush=True)
        sys.exit(3)
    if model == "sleeps":
        time.sleep(600)
    if model == "late":
        LATE.append(True)
    if model == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ThreadingHTTPServer(("127.0.0.1", port), Routes).serve_forever(poll_interval=0.02)


if __name__ == "__main__":
    main()
