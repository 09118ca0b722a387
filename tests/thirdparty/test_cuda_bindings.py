# SPDX-License-Identifier: Apache-2.0
"""cuda-bindings and cuda-core from PyPI, unmodified, on simulated cards."""

import json
import pathlib

import pytest

CLIENT = pathlib.Path(__file__).with_name("bindings_client.py")

pytestmark = pytest.mark.heavy


def test_the_driver_api_through_cuda_bindings(foreign, make_cards):
    foreign.need("cuda-bindings", "cuda-core")
    cards = make_cards("2x4GiB")
    done = foreign.python(cards, CLIENT)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["version"] == 13000 and said["count"] == 2
    assert said["memory"] == {"kind": 2, "twice": "CUDA_ERROR_INVALID_VALUE", "none": "CUDA_ERROR_INVALID_VALUE"}
    assert said["mapped"] == {"granularity": 2 << 20, "partly": "CUDA_ERROR_INVALID_VALUE"}
    assert said["ordered"] == {"used": 0, "elapsed": True}
    assert said["code"] == {"absent": "CUDA_ERROR_NOT_FOUND"}
    assert said["core"]["name"] == "Simulated GPU 4GiB" and said["core"]["size"] == 2 << 20
    shown = cards.show()
    card = shown["devices"][0]
    assert card["uuid"].endswith(said["core"]["uuid"].removeprefix("GPU-"))
    assert shown["processes"] == [] and card["used_bytes"] == 0 and shown["violations"] == 0
    assert "the kernel 'mine' is not simulated" in done.stderr


def test_an_older_driver_lacks_what_it_lacked(foreign, cards):
    foreign.need("cuda-bindings")
    cards.ctl("set", "driver_version", 12040)
    script = "from cuda.bindings import driver; print(driver.cuInit(0), driver.cuDriverGetVersion())"
    done = foreign.python(cards, "-c", script)
    assert done.returncode == 0 and "12040" in done.stdout, done.stderr
