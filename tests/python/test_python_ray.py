# SPDX-License-Identifier: Apache-2.0
"""sublet.ray without Ray: sizes, options, names, texts, and the checks of `python -m sublet.ray start`. tests/heavy
runs the package with Ray.
"""
import os
import sys
import types

import pytest

import sublet
import sublet.ray
from sublet.ray import _engine, _gang, _gpu, _hook, _job, _start, _take, _watch
from sublet.ray._job import Job, Want
from tests.support.sublet import GIB, MIB

JOB = Job("step", "step", "01000000", "team", "ray job 01000000, task step abc, namespace team, node def")


class FakeRay(types.ModuleType):
    """Notes what the decorator tells Ray."""

    def __init__(self):
        super().__init__("ray")
        self.__version__ = "0"

    def remote(self, **options):
        return lambda target: (options, target)


@pytest.fixture
def ray(monkeypatch):
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    return fake


def test_ray_is_loaded_with_the_first_use_only(monkeypatch):
    assert "ray" not in sys.modules
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(sublet.NotFound, match="pip install ray"):
        sublet.ray.gpu(vram="1GiB")(lambda: None)


@pytest.mark.parametrize("size, count, amount", [("6GiB", 1, 6.0), ("6.5GiB", 1, 7.0), ("6.5GiB", 2, 13.0),
                                                 ("512MiB", 1, 0.5), ("1KiB", 1, 0.0001), ("1025MiB", 1, 2.0)])
def test_ray_is_asked_for_no_less_than_the_lease(size, count, amount):
    assert _engine.gib_of(size, count) == amount


def test_a_node_declares_no_more_than_it_has():
    assert _engine.declared_gib(47 * GIB - 1) == 46.0
    assert _engine.declared_gib(GIB // 2 + 1) == 0.5
    assert _engine.bytes_of(0.5) == 512 * MIB and _engine.bytes_of(6.0) == 6 * GIB


def test_the_decorator_asks_ray_for_vram_and_for_no_gpu(ray):
    options, function = sublet.ray.gpu(vram="6GiB", gpus=2, num_cpus=3, resources={"disk": 1})(lambda: None)
    assert options == {"num_cpus": 3, "num_gpus": 0, "max_calls": 1, "resources": {"disk": 1, "vram_gib": 12.0}}

    @sublet.ray.gpu(vram="4GiB", max_restarts=1)
    class Model:
        """A model."""

        def __init__(self, path, size=1):
            self.path = path

    options, model = Model
    assert options == {"num_gpus": 0, "max_restarts": 1, "resources": {"vram_gib": 4.0}}
    assert (model.__name__, model.__doc__) == ("Model", "A model.")


def test_a_class_without_a_beginning_of_its_own_gets_one(ray):
    class Plain:
        pass

    model = _gpu.leased_class(Plain, Want(GIB))
    assert not hasattr(model.__init__, "__wrapped__") and model.__name__ == "Plain"
    assert issubclass(model, Plain)


def test_a_bundle_has_the_same_resource_as_the_decorator():
    assert sublet.ray.bundle(vram="6GiB", cpus=2, disk=1) == {"CPU": 2, "vram_gib": 6.0, "disk": 1}
    assert sublet.ray.bundle(vram="6GiB", gpus=2, cpus=0) == {"vram_gib": 12.0}


@pytest.mark.parametrize("options, error, words", [
    ({"num_gpus": 1}, ValueError, "count the card twice"), ({"visible": "name"}, ValueError, "visible='name'"),
    ({"gang": "half"}, ValueError, "gang='half'"), ({"vram": "6"}, sublet.BadRequest, "write the unit")])
def test_wrong_options_are_refused_at_once(ray, options, error, words):
    with pytest.raises(error, match=words):
        sublet.ray.gpu(**{"vram": "6GiB", **options})


def test_coroutine_functions_are_refused_and_generators_are_not(ray):
    async def work():
        pass

    def numbers():
        yield 1

    with pytest.raises(TypeError, match="actors only"):
        _gpu.leased_function(work, Want(GIB))
    assert _gpu.leased_function(numbers, Want(GIB)).__name__ == "numbers"


def test_names_show_the_work_of_ray(monkeypatch):
    assert JOB.consumer == "ray.step"
    named = Job("model", "Model", "01000000", "team", "")
    assert named.consumer == "ray.Model" and named.tag.startswith("model-01000000-")
    assert JOB.tag.startswith("step-01000000-")
    assert len(_job.tag_of("x" * 100, "01000000", "4711")) == 64
    assert _job._plain("a/b\n") == "a_b_" and _job._plain("--") == "work"


def test_members_that_restart_together_take_different_places(monkeypatch):
    """Both find the places of dead members: each takes over one of them."""
    keys = {}
    monkeypatch.setattr(_gang, "put_first", lambda key, value: keys.setdefault(key, value))
    group = _gang.Group("group", "node", (GIB, GIB), False)
    assert [_gang.take_place(group, 0, 2, name, lambda _: True) for name in ("a", "b", "c", "a")] == [0, 1, None, 0]
    taken = []

    def lives(owner):
        if owner == "a" and not taken:  # the other member is quicker
            taken.append("d")
            taken.append(_gang.take_place(group, 0, 2, "d", lives))
        return owner not in ("a", "b")

    assert [_gang.take_place(group, 0, 2, "c", lives), taken] == [1, ["d", 0]]
    ours = _gang.process_of(os.getpid())
    assert _gang.lives(ours) and not _gang.lives(f"{os.getpid()}:1") and not _gang.lives(_gang.process_of(1) + "0")


def test_the_tenant_is_named_by_code_then_environment_then_namespace(monkeypatch):
    assert _job.tenant_of(Want(GIB), JOB) == (None, "team")
    monkeypatch.setenv("SUBLET_TENANT", "vision")
    assert _job.tenant_of(Want(GIB), JOB) == ("vision", None)
    assert _job.tenant_of(Want(GIB, tenant="audio"), JOB) == ("audio", None)
    monkeypatch.delenv("SUBLET_TENANT")
    unnamed = Job("step", "step", "01", "0a1b2c3d-0123-4567-89ab-0123456789ab", "")
    assert _job.tenant_of(Want(GIB), unnamed) == (None, None)


def test_a_namespace_that_is_no_tenant_is_left_out_and_a_named_tenant_is_not(capfd):
    def refuse(tenant):
        if tenant is not None:
            raise sublet.Denied(f"tenant {tenant} is not yours")
        return "lease"

    assert _take.as_tenant(Want(GIB), JOB, refuse) == "lease"
    assert "namespace team names no tenant" in capfd.readouterr().err
    with pytest.raises(sublet.Denied):
        _take.as_tenant(Want(GIB, tenant="audio"), JOB, refuse)


def test_the_text_of_a_pause_names_the_preemptor_and_the_time(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    pause = {"preemptor": "lease-7", "reason": "its owner asked for it", "until": "2026-11-28T14:05:10Z"}
    assert _watch.pause_text({"pause": pause}).startswith("paused for lease-7, back about ")
    assert _watch.moment(pause["until"]).minute == 5
    by_hand = dict(pause, preemptor=None, until=None)
    assert _watch.pause_text({"pause": by_hand}) == "paused (its owner asked for it), back at an unknown time"


def test_start_keeps_the_arguments_of_ray():
    rest = ["--head", "--num-gpus", "0", "--resources={\"disk\": 1}", "--port", "7000"]
    assert _start.with_resources(rest, {"vram_gib": 46}) == [
        "--head", "--port", "7000", "--num-gpus=0", '--resources={"disk": 1, "vram_gib": 46}']


@pytest.mark.parametrize("rest, words", [(["--num-gpus", "1"], "a second time"), (["--num-gpus=1"], "a second time"),
                                         (["--resources", "x"], "no JSON"), (["--resources=[]"], "no JSON object"),
                                         (["--resources", '{"vram_gib": 1}'], "which --factor declares")])
def test_start_refuses_arguments_that_contradict_it(rest, words):
    with pytest.raises(sublet.BadRequest, match=words):
        _start.with_resources(rest, {"vram_gib": 46})


@pytest.mark.parametrize("arguments, status, words", [
    (["start", "--factor", "0"], 2, "not between 0 and 100"), (["start", "--factor", "nan"], 2, "not between"),
    (["start", "--num-gpus", "1"], 2, "a second time")])
def test_start_says_how_it_can_be_helped(place, capsys, arguments, status, words):
    assert _start.main(arguments) == status
    assert words in capsys.readouterr().err


def test_start_refuses_a_factor_below_the_leases_of_ray(place, capsys):
    lease = sublet.lease("3GiB", wait=False)
    lease.call_it(JOB.text)
    with lease:
        assert place.leases()[0]["command"] == JOB.text
        assert _start.main(["start", "--factor", "0.5"]) == 1
    said = capsys.readouterr().err
    assert "has leased 3.0 GiB, and the factor declares 1.0 GiB" in said and "--factor 0." in said


def test_start_without_a_daemon_says_so(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("SUBLET_HOST", f"unix://{tmp_path}/none.sock")
    assert _start.main(["start"]) == 1
    assert "no daemon answers" in capsys.readouterr().err


def test_the_hook_names_a_version_of_ray_that_it_does_not_know(ray):
    with pytest.raises(sublet.NotFound, match="use the decorator"):
        _hook.setup()


def test_the_hook_of_jobs_keeps_their_environment_and_refuses_a_second_hook():
    assert sublet.ray.environment(None) == {"worker_process_setup_hook": "sublet.ray.setup"}
    given = {"env_vars": {"A": "1"}}
    assert sublet.ray.environment(given)["env_vars"] == {"A": "1"} and len(given) == 1
    with pytest.raises(sublet.BadRequest, match="a setup hook of its own: mine.setup"):
        sublet.ray.environment({"worker_process_setup_hook": "mine.setup"})


def test_a_worker_without_a_lease_is_healthy_and_not_paused():
    assert sublet.ray.healthy() and not sublet.ray.paused() and sublet.ray.held() is None
