# SPDX-License-Identifier: Apache-2.0
"""The manual: the programs make it, it is complete, and every renderer can read it."""
import re
import shutil
import subprocess

import pytest

from tests.support.sublet import BIN, BUILD, ROOT

PAGES = BUILD / "packaging/man"


def said(program, *arguments):
    return subprocess.run([BIN / program, *arguments], capture_output=True, text=True, check=True,
                          stdin=subprocess.DEVNULL).stdout


@pytest.fixture(scope="module")
def manual(tmp_path_factory):
    """Writes every page with the programs, as the installation does."""
    folder = tmp_path_factory.mktemp("man")
    said("sublet", "__reference", "manual", folder)
    (folder / "subletd.8").write_text(said("subletd", "__reference", "manual"))
    for program in ("sublet-gpu", "sublet-actor", "sublet-keep", "sublet-stacks"):
        page = subprocess.run(["/usr/bin/python3", ROOT / "tools/help_page.py", BIN / program, "8", "help the daemon",
                               "subletd(8)"], capture_output=True, text=True, check=True).stdout
        (folder / f"{program}.8").write_text(page)
    return folder


def plain(page):
    """Returns the page's text as a reader sees it, without a particular renderer."""
    text = re.sub(r"\\f[BRIP]|\\&", "", page.read_text())
    for roff, char in (("\\-", "-"), ("\\e", "\\"), ("\\(ga", "`"), ("\\(ti", "~"), ("\\(ha", "^")):
        text = text.replace(roff, char)
    return text


def verbs():
    return re.findall(r"^  ([a-z]+) ", said("sublet", "--help"), re.M)


def flags(text):
    """The long flags that a --help lists; mentions of flags stand further right."""
    return {flag for line in text.splitlines() if re.match(r"  -", line)
            for flag in re.findall(r"--[a-z][a-z-]+", line[:34])}


def test_every_verb_has_its_page_with_every_flag(manual):
    assert len(verbs()) > 15
    for verb in set(verbs()) - {"help"}:
        text = plain(manual / f"sublet-{verb}.1")
        found = flags(said("sublet", verb, "--help"))
        assert found and not [flag for flag in found if flag not in text], verb
        assert f": sublet-{verb}(1)" in plain(manual / "sublet.1")
    for sub in ("check", "show"):
        text = plain(manual / "sublet-config.1")
        assert not [flag for flag in flags(said("sublet", "config", sub, "--help")) if flag not in text]


def test_defaults_of_options_are_told_alike(manual):
    reference = (ROOT / "docs/reference/cli.md").read_text()
    for verb, shown in (("token create", "--scope SCOPE=read"), ("report", "--by WHAT=user"),
                        ("status", "--watch EVERY=2s")):
        assert shown in said("sublet", *verb.split(), "--help")
        assert f"| `{shown}` |" in reference.split(f"### `sublet {verb}`")[1].split("###")[0]
        assert shown in plain(manual / f"sublet-{verb.split()[0]}.1"), verb


def test_no_page_is_left_over(manual):
    pages = {page.name for page in manual.glob("sublet-*.1")}
    assert pages == {f"sublet-{verb}.1" for verb in set(verbs()) - {"help"}}


def test_every_key_stands_in_the_configuration_s_page(manual):
    text = plain(manual / "sublet.toml.5")
    keys = re.findall(r"^\| `([a-z_.]+)` \|", (ROOT / "docs/reference/config.md").read_text(), re.M)
    assert len(keys) > 10 and not [key for key in keys if key not in text]


@pytest.mark.parametrize("program", ["subletd", "sublet-gpu", "sublet-actor", "sublet-keep", "sublet-stacks"])
def test_every_option_of_the_other_programs_stands_in_their_page(manual, program):
    text = plain(manual / f"{program}.8")
    found = set(re.findall(r"--[a-z][a-z-]+", said(program, "--help")))
    assert found and not [flag for flag in found if flag not in text]


def test_exit_codes_stand_in_the_first_page(manual):
    text = plain(manual / "sublet.1")
    for code in ("69", "75", "77", "78"):
        assert re.search(rf"^{code}$", text, re.M)


def test_man_renders_every_page_without_a_warning(manual):
    if not shutil.which("man"):
        pytest.skip("no man here")
    for page in sorted(manual.iterdir()):
        done = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-P", "cat", page], capture_output=True,
                              text=True, env={"LC_ALL": "C.UTF-8", "MANWIDTH": "100", "PATH": "/usr/bin:/bin",
                                              "MANROFFSEQ": ""})
        assert done.returncode == 0 and not done.stderr.strip(), f"{page.name}: {done.stderr}"
        assert "NAME" in done.stdout and page.name.rsplit(".", 1)[0] in done.stdout


def test_mandoc_finds_nothing_wrong_with_a_page(manual):
    if not shutil.which("mandoc"):
        pytest.skip("no mandoc here")
    done = subprocess.run(["mandoc", "-Tlint", "-W", "warning", *sorted(manual.iterdir())], capture_output=True,
                          text=True)
    # The pages have no date: they are as old as the program that wrote them.
    left = [line for line in done.stdout.splitlines() if "missing date" not in line]
    assert not left, "\n".join(left)


def test_the_build_makes_the_pages_that_are_installed(manual):
    if not (PAGES / "made").exists():
        pytest.skip("this build has no manual: ninja sublet_manual makes it")
    assert {page.name for page in PAGES.iterdir()} - {"made"} == {page.name for page in manual.iterdir()}
