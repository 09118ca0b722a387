# SPDX-License-Identifier: Apache-2.0
"""Schemathesis makes requests from the contract that the daemon serves, and checks the answers. It uses TCP, where no
process can be named as an owner: random requests must not reach processes outside this test.
"""
import json
import subprocess

import pytest
from conftest import VENV

from tests.support.sublet import Daemon
from tests.support.tcp import free_port

CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance",
          "unsupported_method", "negative_data_rejection")


@pytest.mark.heavy
def test_the_api_keeps_its_contract(foreign, tmp_path):
    foreign.need("schemathesis")
    port = free_port()
    daemon = Daemon(config=f'[api]\ntcp = "127.0.0.1:{port}"\n[limits]\nleases = 50\n')
    try:
        daemon.start()
        token = daemon.api().post("/v1/tokens", {"scope": "submit"})["token"]
        contract = tmp_path / "openapi.json"
        contract.write_text(json.dumps(daemon.get("/v1/openapi.json").body))
        done = subprocess.run(
            [VENV / "bin/st", "run", contract, "--url", f"http://127.0.0.1:{port}", "-H",
             f"Authorization: Bearer {token}", "--exclude-path", "/v1/events",
             "--exclude-path-regex", "^/v1/stacks",  # off without an engine: each answer is 503
             "--checks", ",".join(CHECKS),
             "--phases", "coverage,fuzzing", "--mode", "all", "--max-examples", "30", "--seed", "20261121",
             "--continue-on-failure", "--no-color"],
            capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=600, cwd=tmp_path)
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        assert daemon.process.poll() is None and daemon.get("/healthz").status == 200
    finally:
        daemon.close()
