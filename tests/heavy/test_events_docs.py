# SPDX-License-Identifier: Apache-2.0
"""Every block of docs/events.md is used against a real daemon, a real Redis server and a receiver."""
import configparser
import re
import subprocess
import threading

from tests.heavy.test_redis import RedisServer, Subscriber, pytestmark, started  # noqa: F401
from tests.support.contract import ROOT
from tests.support.receiver import Receiver
from tests.support.sublet import GIB, Daemon, wait_until

PAGE = (ROOT / "docs/events.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.M | re.S)


def of(kind):
    return [text for name, text in BLOCKS if name == kind]


def test_the_page_does_what_it_shows(started, tmp_path):  # noqa: F811
    assert sorted(name for name, _ in BLOCKS) == ["console", "console", "ini", "python", "toml"]
    server = started(RedisServer, tmp_path)
    receiver = started(Receiver)
    [config] = of("toml")
    config = config.replace("127.0.0.1:6379", f"127.0.0.1:{server.port}")
    config = config.replace("http://127.0.0.1:8099", receiver.url)
    daemon = started(Daemon, config='[gpu]\ninterval_idle = "1s"\n' + config)
    subscriber = started(Subscriber, server)
    test, listen = of("console")

    command, printed = test.split("\n", 1)
    assert command == "$ sublet events --test-target bot"
    assert daemon.cli(*command.split()[2:], check=0).stdout == printed

    words = listen.strip()[2:].replace("6379", str(server.port))
    redis_cli = subprocess.Popen(["sh", "-c", "exec " + words], stdout=subprocess.PIPE, text=True)
    try:
        assert redis_cli.stdout.readline().strip().endswith("psubscribe")
        daemon.api().post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 600})
        wait_until(lambda: subscriber.of("lease") and '"lease"' in str(receiver.bodies()), "both have it")
        seen = []
        reader = threading.Thread(target=lambda: seen.extend(iter(redis_cli.stdout.readline, "")), daemon=True)
        reader.start()
        wait_until(lambda: "sublet.lease" in "".join(seen), "redis-cli prints it")
    finally:
        redis_cli.kill()
        redis_cli.wait()

    names = {}
    exec(of("python")[0], names)  # noqa: S102
    for _, headers, body in receiver.calls:
        assert names["is_ours"](body.encode(), headers["Sublet-Signature"])
        assert not names["is_ours"](body.encode() + b" ", headers["Sublet-Signature"])


def test_the_drop_in_only_adds_to_what_the_unit_allows():
    def lines_of(text, key):
        return [line.split("=", 1)[1] for line in text.splitlines() if line.startswith(key + "=")]
    unit = (ROOT / "packaging/subletd.service").read_text()
    assert lines_of(unit, "IPAddressDeny") == ["any"] and lines_of(unit, "IPAddressAllow") == ["localhost"]
    drop_in = configparser.ConfigParser()
    drop_in.optionxform = str
    drop_in.read_string(of("ini")[0])
    assert list(drop_in["Service"]) == ["IPAddressAllow"]


def test_the_tables_name_each_key_and_format():
    reference = (ROOT / "docs/reference/config.md").read_text().split("## `[[events.webhook]]`")[1].split("\n## ")[0]
    for key in re.findall(r"^\| `(\w+)` \|", reference, re.M):
        assert f"`{key}`" in PAGE, key
    for word in ("json", "ntfy", "slack", "discord"):
        assert f"| `{word}` |" in PAGE
