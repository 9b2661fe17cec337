"""Run one program in the sandbox, by SandboxFusion's `/run_code`: python examples/run_code.py"""

import json
import subprocess
import urllib.request

sandbox = subprocess.Popen(["evalrun", "serve", "sandbox", "--port", "0"], stdout=subprocess.PIPE, text=True)
try:
    address = next(line.split()[-1] for line in sandbox.stdout if " ready on " in line)
    url = address if "://" in address else f"http://{address}"
    body = {"language": "python", "code": "print(sum(map(int, input().split())))", "stdin": "20 22", "run_timeout": 5}
    request = urllib.request.Request(f"{url}/run_code", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        result = json.load(answer)
    print(result["status"], result["run_result"]["stdout"].strip())
finally:
    sandbox.terminate()
    sandbox.wait()
