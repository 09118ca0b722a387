# SPDX-License-Identifier: Apache-2.0
"""The manifests and the plugin of kubectl, without a cluster. `./dev test cluster` installs them in one."""
import shutil
import subprocess
import tarfile

import pytest
import yaml

from tests.support.contract import ROOT

MANIFESTS = ROOT / "packaging/kubernetes/manifests/sublet.yaml"
PLUGIN = ROOT / "integrations/kubernetes/kubectl-sublet"


@pytest.fixture(name="objects", scope="module")
def objects_fixture():
    documents = [each for each in yaml.safe_load_all(MANIFESTS.read_text()) if each]
    return {(each["kind"], each["metadata"]["name"]): each for each in documents}


def test_the_agent_may_do_no_more_than_it_does(objects):
    rules = objects["ClusterRole", "sublet-kube"]["rules"]
    rights = {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
    assert not {resource for resource, verb in rights if "*" in resource + verb or resource == "secrets"}
    written = {resource for resource, verb in rights if verb not in ("get", "list", "watch")}
    assert written == {"pods/status", "events", "resourceclaims/status", "resourceclaims/driver", "resourceslices"}


def test_each_policy_is_bound_and_fails_closed(objects):
    for kind in ("ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"):
        policies = {name: each for (found, name), each in objects.items() if found == kind}
        bound = {each["spec"]["policyName"] for (found, _), each in objects.items() if found == f"{kind}Binding"}
        assert policies and set(policies) == bound
        assert {each["spec"]["failurePolicy"] for each in policies.values()} == {"Fail"}


def test_the_resource_is_named_after_the_unit(objects):
    agent, = objects["DaemonSet", "sublet-kube"]["spec"]["template"]["spec"]["containers"]
    assert "--unit=512Mi" in agent["args"] and "--doors=plugin,dra" in agent["args"]
    assert "sublet.dev/vram-512mi" in yaml.safe_dump(objects["MutatingAdmissionPolicy", "sublet-gpu-mem"])


@pytest.fixture(name="plugin")
def plugin_fixture(tmp_path):
    """Runs the plugin. Its kubectl gives `answers` by a part of its arguments, and `exec` ends with `ended`."""
    def run(*arguments, ended=0, **answers):
        lines = ["#!/bin/sh", 'echo "$*" >>"$0.calls"', 'case "$*" in']
        for number, (part, said) in enumerate(answers.items()):
            (tmp_path / str(number)).write_text(said)
            lines.append(f"*{part}*) cat {tmp_path}/{number}; exit {ended if part == 'exec' else 0} ;;")
        (tmp_path / "kubectl").write_text("\n".join([*lines, "esac", ""]))
        (tmp_path / "kubectl").chmod(0o755)
        calls = tmp_path / "kubectl.calls"
        calls.write_text("")
        done = subprocess.run(["sh", PLUGIN, *arguments], capture_output=True, text=True, timeout=60,
                              env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
        return done, calls.read_text()
    return run


def test_why_tells_the_daemon_s_answer_to_a_user_who_may_ask_the_agent(plugin):
    done, calls = plugin("why", "train", "-n", "lab", nodeName="n7", Resident="False", can="yes", exec="lease-3 waits",
                         app="sublet-kube-x1")
    assert done.returncode == 0 and "lease-3 waits" in done.stdout, done
    assert "sublet why lab.train" in calls and "get pod train -n lab" in calls


def test_why_tells_conditions_and_events_to_others(plugin):
    done, calls = plugin("why", "train", nodeName="n7", message="6 GiB parked for team-b", can="no", events="Parked")
    assert "6 GiB parked for team-b" in done.stdout and "exec" not in calls.replace("pods/exec", ""), done


@pytest.mark.parametrize("namespace, said, asked", [("lab", "lease-3 holds 1 GiB", "lab.train-0"),
                                                    ("l" * 56, "lease-3 holds 1 GiB", "l" * 56 + ".train-0"),
                                                    ("l" * 60, "lease-3 holds 1 GiB", "lease-3"),
                                                    ("l" * 60, "lease-12 (train) waits", "lease-12")])
def test_why_asks_for_the_id_of_a_lease_whose_tag_is_cut(plugin, namespace, said, asked):
    done, calls = plugin("why", "train-0", "-n", namespace, nodeName="n7", message=said, can="yes", exec="it runs",
                         app="sublet-kube-x1")
    assert done.returncode == 0 and f"sublet why {asked}\n" in calls, (done, calls)


@pytest.mark.parametrize("ended, said", [(4, "has no lease of train"), (69, "no daemon answers")])
def test_why_tells_the_events_of_a_pod_without_a_lease(plugin, ended, said):
    done, _ = plugin("why", "train", ended=ended, nodeName="n7", can="yes", exec="no daemon answers",
                     app="sublet-kube-x1", events="BackOff")
    assert done.returncode == 0 and said in done.stdout and "BackOff" in done.stdout, done


def test_why_tells_that_a_pod_has_no_node(plugin):
    done, _ = plugin("why", "train", PodScheduled="0/3 nodes are available: Insufficient sublet.dev/vram-512mi")
    assert "no node yet" in done.stdout and "Insufficient" in done.stdout, done


@pytest.mark.parametrize("arguments, said", [(("why",), "which pod"), (("whine", "x"), "whine"), (("ps", "-x"), "-x"),
                                             (("why", "a", "b"), "one pod"), (("ps", "-n"), "needs a namespace")])
def test_wrong_arguments_of_the_plugin_are_refused(plugin, arguments, said):
    done, calls = plugin(*arguments)
    assert done.returncode == 2 and said in done.stderr and "get pod" not in calls, done


def test_the_image_is_made_of_the_packages_of_a_release(tmp_path):
    if not shutil.which("dpkg-deb"):
        pytest.skip("no dpkg-deb here")
    for name, program in (("sublet", "sublet"), ("sublet-kube", "sublet-kube"), ("sublet-simgpu", "simgpu-ctl")):
        tree = tmp_path / name
        (tree / "usr/bin").mkdir(parents=True)
        (tree / "DEBIAN").mkdir()
        shutil.copy("/bin/true", tree / "usr/bin" / program)
        (tree / "DEBIAN/control").write_text(f"Package: {name}\nVersion: 1\nArchitecture: all\nDescription: x\n"
                                             "Maintainer: X <x@localhost>\n")
        subprocess.run(["dpkg-deb", "-Znone", "-b", tree, tmp_path / f"{name}_1_all.deb"], check=True,
                       capture_output=True)
    image = tmp_path / "image.tar"
    make = [ROOT / "tools/kube_image.py", "--packages", tmp_path, "--out", image]
    subprocess.run(make, check=True, capture_output=True)
    with tarfile.open(image) as opened, tarfile.open(fileobj=opened.extractfile("layer.tar")) as layer:
        programs = sorted(name for name in layer.getnames() if name.startswith("usr/bin/"))
    assert programs == ["usr/bin/sublet", "usr/bin/sublet-kube"]
    subprocess.run(["dpkg-deb", "-x", tmp_path / "sublet-kube_1_all.deb", tmp_path / "sublet"], check=True)
    alone = shutil.copy(make[0], tmp_path / "kube_image.py")  # as in the package
    again = tmp_path / "again.tar"
    subprocess.run([alone, "--bin", tmp_path / "sublet/usr/bin", "--out", again], check=True, capture_output=True)
    assert again.stat().st_size == image.stat().st_size
    (tmp_path / "sublet-kube_1_all.deb").unlink()
    done = subprocess.run(make, capture_output=True, text=True)
    assert done.returncode == 1 and "0 files sublet-kube_*.deb" in done.stderr
