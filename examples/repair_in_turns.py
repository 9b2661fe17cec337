"""Evaluate a model that learns how its answer failed and answers again: python examples/repair_in_turns.py

The model is a server of this file's own: it adds one number too few until it is told so.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import evalrun


class Model(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer({"object": "list", "data": [{"id": "adder", "object": "model"}]})

    def do_POST(self):
        messages = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"]
        was_told = len(messages) > 1 and "failed" in messages[-1]["content"]
        code = "print(sum(map(int, input().split())))" if was_told else "print(input().split()[0])"
        message = {"role": "assistant", "content": f"```python\n{code}\n```"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
        self.answer({"id": "1", "object": "chat.completion", "model": "adder", "choices": [choice], "usage": usage})

    def answer(self, body):
        content = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
threading.Thread(target=server.serve_forever, daemon=True).start()

Path("out").mkdir(exist_ok=True)
tests = {"inputs": ["1 2\n", "5 7\n"], "outputs": ["3\n", "12\n"]}
problem = {"dataset": "sums", "problem_id": "a", "prompt": "Add the numbers of a line.", "ground_truth": tests}
Path("out/sums.jsonl").write_text(json.dumps(problem) + "\n")
Path("out/turns.yaml").write_text(f"""\
apiVersion: evalrun.dev/v1alpha1
kind: EvalRun
metadata: {{name: turns}}
spec:
  model: {{path: adder}}
  endpoints: [{{url: "http://127.0.0.1:{server.server_port}/v1"}}]
  datasets: [{{name: sums, source: sums.jsonl}}]
  protocol: {{name: EVAL@turns, turns: {{limit: 2}}}}
""")
run = evalrun.run("out/turns.yaml", output="out/turns", progress=False)
for metric in ("accepted_at_1", "recovery_rate"):
    print(f"{metric}: {run.metric('sums', metric):.2f}")
