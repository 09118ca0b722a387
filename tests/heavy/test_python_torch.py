# SPDX-License-Identifier: Apache-2.0
"""sublet.torch with PyTorch on the CPU. tests/gpu runs it with CUDA."""
import gc
import os
import subprocess
import sys
import threading
import types
import weakref

import pytest

import sublet
import sublet.torch
from sublet import _torch_move
from tests.support.python_place import SOURCE
from tests.support.sublet import BIN, GIB, MIB, ROOT, wait_until


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="PyTorch is not installed: apt-get install python3-torch")


@pytest.fixture
def movable(torch, monkeypatch):
    """Host memory takes the place of the card, and is moved like it."""
    monkeypatch.setattr(_torch_move, "is_on_card", lambda device: True)
    monkeypatch.setattr(_torch_move, "CHUNK", 1000)  # so that tensors are cut


def storage_of(tensor):
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage().untyped()


def training(torch, seed=3):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(17, 33), torch.nn.BatchNorm1d(33), torch.nn.Linear(33, 17))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def step(torch, model, optimizer, number):
    batch = torch.randn(8, 17, generator=torch.Generator().manual_seed(number))
    loss = (model(batch) - batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item().hex()


def test_a_training_run_is_the_same_to_the_last_bit(torch, movable):
    undisturbed = training(torch)
    expected = [step(torch, *undisturbed, number) for number in range(20)]
    model, optimizer = training(torch)
    aside = sublet.torch.offload(model, optimizer)
    parameters = list(model.parameters())
    losses = []
    for number in range(20):
        losses.append(step(torch, model, optimizer, number))
        if number % 3 == 0:
            gradients = [parameter.grad for parameter in parameters]
            aside.on_pause()
            assert all(storage_of(tensor).nbytes() == 0 for tensor in parameters + gradients)
            assert all(storage_of(tensor).nbytes() == 0 for state in optimizer.state.values()
                       for tensor in state.values() if isinstance(tensor, torch.Tensor))
            sizes = sum(4 * tensor.numel() for tensor in parameters)
            assert aside.offloaded_bytes >= 4 * sizes, "weights, gradients and two moments"
            aside.on_resume()
            assert aside.offloaded_bytes == 0
    assert losses == expected
    assert all(one is other for one, other in zip(parameters, model.parameters())), "the same objects"


def values(torch):
    return {
        "float64": torch.randn(100, dtype=torch.float64), "bfloat16": torch.randn(33).to(torch.bfloat16),
        "bool": torch.rand(999) > 0.5, "complex": torch.randn(5, dtype=torch.complex64),
        "nan": torch.tensor([float("nan"), float("inf"), -0.0]), "scalar": torch.tensor(7), "empty": torch.empty(0),
        "strided": torch.arange(60).reshape(6, 10).t()[2:, 1:3],
        "sparse": torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse(),
        "compressed": torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse_csr()}


def test_all_kinds_of_tensors_come_back(torch, movable):
    there = values(torch)
    before = {name: tensor.clone() for name, tensor in there.items()}
    aside = sublet.torch.offload([there, None, "text"])
    aside.on_pause()
    aside.on_pause()  # the second changes nothing
    aside.on_resume()
    aside.on_resume()
    for name, tensor in there.items():
        dense, expected = (one.to_dense() if name in ("sparse", "compressed") else one
                           for one in (tensor, before[name]))
        raw = [one.clone().contiguous().numpy().tobytes() if name != "bfloat16" else
               one.view(torch.int16).numpy().tobytes() for one in (dense, expected)]
        assert raw[0] == raw[1], name
        assert tensor.shape == before[name].shape


def test_views_and_tied_weights_stay_tied(torch, movable):
    model = torch.nn.ModuleDict({"in": torch.nn.Embedding(10, 4, sparse=True), "out": torch.nn.Linear(4, 10)})
    model["out"].weight = model["in"].weight
    model["in"](torch.tensor([3, 3, 7])).sum().backward()
    assert model["in"].weight.grad.is_sparse
    row = model["in"].weight.data[3]
    expected = row.clone()
    aside = sublet.torch.offload(model)
    aside.on_pause()
    assert aside.offloaded_bytes < 2 * 4 * 40 + 1000, "tied weights move once"
    aside.on_resume()
    assert torch.equal(row, expected) and row.data_ptr() == model["out"].weight.data[3].data_ptr()
    assert torch.equal(model["out"].weight.grad.to_dense()[3], torch.full((4,), 2.0))


def test_a_recurrent_network_keeps_its_flat_weights(torch, movable):
    network = torch.nn.LSTM(4, 8, num_layers=2)
    data = torch.randn(5, 3, 4)
    expected = network(data)[0]
    aside = sublet.torch.offload(network)
    aside.on_pause()
    aside.on_resume()
    assert torch.equal(network(data)[0], expected)


def test_hooks_of_gradients_survive(torch, movable):
    model, _ = training(torch)
    calls = []
    # Distributed training holds these nodes.
    nodes = [parameter.expand_as(parameter).grad_fn.next_functions[0][0] for parameter in model.parameters()]
    for node in nodes:
        node.register_hook(lambda *_: calls.append(1))
    aside = sublet.torch.offload(model)
    aside.on_pause()
    aside.on_resume()
    model(torch.randn(4, 17)).sum().backward()
    assert len(calls) == len(nodes) == 6


def test_the_model_may_come_to_the_card_after_the_callbacks(torch, movable):
    things = []
    aside = sublet.torch.offload(things)
    things.append(torch.randn(100))
    aside.on_pause()
    assert aside.offloaded_bytes == 400
    aside.on_resume()


class Failing:
    """A storage whose growth fails, as on a full card, or whose shrinking fails, as for memory of others."""

    def __init__(self, torch, monkeypatch):
        self.storage, self.fail = torch.randn(50).storage().untyped(), set()
        self.device, self.data_ptr, self.nbytes = self.storage.device, self.storage.data_ptr, self.storage.nbytes
        monkeypatch.setattr(_torch_move, "_bytes_of", lambda torch, storage: torch.empty(
            0, dtype=torch.uint8).set_(getattr(storage, "storage", storage)))

    def resize_(self, size):
        if size in self.fail:
            raise RuntimeError("out of memory")
        self.storage.resize_(size)


def test_a_failure_leaves_all_bytes_at_one_place(torch, movable, monkeypatch):
    good, bad = torch.randn(300), Failing(torch, monkeypatch)
    expected = good.clone()
    both = _torch_move.HostCopy(torch, [storage_of(good), bad])
    bad.fail = {0}
    with pytest.raises(sublet.InUse, match="200 B on cpu"):
        both.save()
    assert torch.equal(good, expected) and bad.nbytes() == 200, "all is on the card"
    bad.fail = {200}
    both = _torch_move.HostCopy(torch, [storage_of(good), bad])
    both.save()
    with pytest.raises(RuntimeError):
        both.load()
    assert storage_of(good).nbytes() == 0 == bad.nbytes(), "all is in host memory"
    bad.fail = set()
    both.load()
    assert torch.equal(good, expected) and bad.nbytes() == 200


def interrupt(*_):
    raise KeyboardInterrupt


def test_an_interrupt_after_the_storages_are_empty_keeps_the_bytes(torch, movable, monkeypatch):
    tensor, other = torch.randn(300), torch.randn(20)
    expected, aside = tensor.clone(), sublet.torch.offload([tensor, other])
    with monkeypatch.context() as patch:
        patch.setattr(_torch_move, "release_caches", interrupt)
        with pytest.raises(KeyboardInterrupt):
            aside.on_pause()
        assert torch.equal(tensor, expected) and aside.offloaded_bytes == 0
        patch.setattr(_torch_move.HostCopy, "_fill", interrupt)  # the second Ctrl-C
        with pytest.raises(KeyboardInterrupt):
            aside.on_pause()
    assert aside.offloaded_bytes == 1280, "the copy is kept"
    aside.on_resume()
    assert torch.equal(tensor, expected) and aside.offloaded_bytes == 0


def test_memory_of_another_library_refuses_the_pause(torch, movable):
    mine, theirs = torch.randn(100), torch.randn(100)
    expected, array = mine.clone(), theirs.numpy()
    aside = sublet.torch.offload([mine, theirs])
    with pytest.raises(sublet.InUse, match="leave this tensor out"):
        aside.on_pause()
    assert torch.equal(mine, expected) and (array == theirs.numpy()).all() and aside.offloaded_bytes == 0


def test_an_argument_without_known_tensors_is_refused(torch):
    class Average:
        def __init__(self):
            self.shadow = [torch.ones(10)]

    model, optimizer = training(torch)
    optimizer.param_groups[0]["extra"] = Average()
    sublet.torch.offload(model, optimizer, {"step": 3, "name": "a", "dtype": torch.float32, "none": None})
    for thing in (Average(), [model, {"average": Average()}], model.parameters()):
        with pytest.raises(TypeError, match="finds no tensors in an object of the type (Average|generator|.*Average)"):
            sublet.torch.offload(thing)


def test_the_host_copy_is_freed(torch, movable):
    tensor = torch.randn(1000)
    aside = sublet.torch.offload(tensor)
    aside.on_pause()
    chunks = [weakref.ref(chunk) for chunk in aside._copy._chunks]
    aside.on_resume()
    gc.collect()
    assert chunks and not any(chunk() for chunk in chunks)


def test_without_a_card_nothing_moves(torch):
    model, optimizer = training(torch)
    aside = sublet.torch.offload(model, optimizer)
    aside.on_pause()
    assert aside.offloaded_bytes == 0 and storage_of(next(model.parameters())).nbytes() > 0
    aside.on_resume()


def lease_for_a_moment(api):
    """A more urgent lease by a token: a program below this process would use this process's lease."""
    granted = api.post("/v1/leases", {"vram_bytes": 2 * GIB, "tier": "interactive", "ttl_seconds": 600,
                                      "wait_seconds": 60})
    assert granted.status == 201, granted
    api.post(f"/v1/leases/{granted['id']}/release", {})


def test_a_lease_has_the_callbacks(torch, movable, place):
    model, optimizer = training(torch)
    aside = sublet.torch.offload(model, optimizer)
    expected = [step(torch, *training(torch), number) for number in range(1)]
    with sublet.lease("3GiB", tier="batch", on_pause=aside.on_pause, on_resume=aside.on_resume) as lease:
        assert sublet.torch.cap() == {}, "there is no card to cap"
        urgent = threading.Thread(target=lease_for_a_moment, args=[place.daemon.api()])
        urgent.start()
        wait_until(lambda: lease._pauses.asked, "the order is there")
        assert lease.safe_point() is True
        urgent.join(60)
        assert not urgent.is_alive()
        assert [step(torch, model, optimizer, 0)] == expected


# --- with a stand-in for CUDA ---

class Card:
    """torch.cuda of two devices, which notes the calls."""

    def __init__(self, uuids=("GPU-a", "GPU-b"), total=16 * GIB):
        self.uuids, self.total, self.fractions = uuids, total, {}
        self.reserved, self.allocated, self.peak = 3 * GIB, 2 * GIB, 5 * GIB - 3
        self.cuda = types.SimpleNamespace(
            is_available=lambda: True, is_initialized=lambda: True, device_count=lambda: len(uuids),
            get_device_properties=lambda index: types.SimpleNamespace(total_memory=total, uuid=uuids[index][4:]),
            set_per_process_memory_fraction=lambda fraction, index: self.fractions.update({index: fraction}),
            current_device=lambda: 0, mem_get_info=lambda index: (1 * GIB, total), empty_cache=lambda: None,
            memory_reserved=lambda index: self.reserved, memory_allocated=lambda index: self.allocated,
            reset_peak_memory_stats=lambda index: None, synchronize=lambda index: None,
            max_memory_reserved=lambda index: self.peak if index else 1)


@pytest.fixture
def card(monkeypatch):
    made = Card()
    monkeypatch.setattr(sublet.torch, "_torch", lambda: made)
    return made


def held(*devices, vram=8 * GIB):
    return types.SimpleNamespace(id="lease-1", devices=devices, vram_bytes=vram)


def test_a_cap_is_the_lease_without_the_context(card):
    assert sublet.torch.cap(held("GPU-b")) == {1: 7.5 / 16} == card.fractions
    assert sublet.torch.cap(held("GPU-b", "GPU-a"), context=0) == {1: 0.5, 0: 0.5} == card.fractions
    assert sublet.torch.cap(held("GPU-a", vram=512 * MIB)) == {0: 1 / 64}, "at least half of the lease"
    assert sublet.torch.cap(held("GPU-a", vram=64 * GIB)) == {0: 1.0}


def test_a_cap_needs_a_lease_and_its_device(card):
    with pytest.raises(sublet.NotHeld):
        sublet.torch.cap()
    with pytest.raises(sublet.NotFound, match="GPU-c"):
        sublet.torch.cap(held("GPU-c"))


def test_an_old_version_finds_devices_by_the_variable(card, monkeypatch):
    card.cuda.get_device_properties = lambda index: types.SimpleNamespace(total_memory=16 * GIB)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b,GPU-a")
    assert list(sublet.torch.cap(held("GPU-a"))) == [1]


def test_a_measurement_suggests_a_tenth_more_in_whole_mib(card):
    measured = sublet.torch.measure(lambda one, two: one + two, 1, two=2, context=0)
    assert measured.result == 3 and measured.peak_bytes == 5 * GIB - 3
    assert measured.suggested_bytes == 5632 * MIB and measured.suggested == "5632MiB"
    assert sublet.torch.measure(int).peak_bytes == 5 * GIB - 3 + 512 * MIB


def test_a_measurement_makes_no_context_on_unused_devices(card):
    named = []
    card.cuda.max_memory_reserved = lambda index: card.peak if index else 0
    card.cuda.reset_peak_memory_stats = card.cuda.synchronize = named.append
    assert sublet.torch.measure(int, context=0).peak_bytes == card.peak and set(named) == {1}


def test_a_measurement_without_a_card_is_refused(torch):
    with pytest.raises(sublet.NotFound, match="no CUDA device"):
        sublet.torch.measure(int)


OOM = RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 16.00 GiB total capacity; 3.00 GiB "
                   "already allocated)\nmore")
YOUNGER = RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 1 has a total capacity of 16.00 GiB of "
                       "which 4.44 MiB is free.")


@pytest.mark.parametrize("error, wanted, index", [(OOM, 2 * GIB, 0), (YOUNGER, 20 * MIB, 1),
                                                  (RuntimeError("CUDA error: out of memory"), 0, None)])
def test_the_request_is_read_from_the_messages_of_all_versions(error, wanted, index):
    assert sublet.torch._request_in(str(error)) == (wanted, index)
    assert sublet.torch.explain_oom(error).startswith("CUDA is out of memory: CUDA ")


def test_an_explanation_names_process_lease_card_and_next_step(card, start_place):
    text = sublet.torch.explain_oom(OOM)
    assert "No lease is held" in text and "take a lease" in text
    start_place("1x16GiB")
    with sublet.lease("4GiB") as lease:
        text = sublet.torch.explain_oom(OOM)
        for part in ("3.0 GiB on cuda:0", "2.0 GiB in tensors", "1.0 GiB in its cache", "1.0 GiB free of 16.0 GiB",
                     f"{lease.id} has 4.0 GiB", "may still be leased, of 16.0 GiB", 'lease.resize("6196MiB")'):
            assert part in text, f"{part}\n{text}"
        card.reserved = card.allocated = GIB // 2
        assert f"sublet why {lease.id}" in sublet.torch.explain_oom(OOM)
        card.reserved = 3 * GIB
        assert "expandable_segments" in sublet.torch.explain_oom(OOM)


def test_an_explanation_never_raises(card, start_place):
    assert "not about GPU memory" in sublet.torch.explain_oom(ValueError())
    card.cuda.memory_reserved = None
    place = start_place()
    with sublet.lease("1GiB"):
        place.daemon.kill()
        text = sublet.torch.explain_oom(OOM)
        assert "memory of this process is unknown" in text and "state of the daemon is unknown" in text
        place.daemon.restart()


def test_without_pytorch_the_error_says_so(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('no library')\n")
    text = "import sublet.torch\ntry: sublet.torch.offload([]).on_pause()\nexcept sublet.NotFound as e: print(e)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": f"{tmp_path}:{SOURCE}"})
    assert "cannot load PyTorch: no library; install it" in done.stdout, done.stderr


def test_the_part_of_the_runner_for_real_cards_passes_on_the_cpu(torch):
    done = subprocess.run([sys.executable, ROOT / "tests/gpu/run.py", "--bin", BIN, "--sim", "1x8GiB", "--parts",
                           "python"], text=True, capture_output=True, timeout=300)
    assert done.returncode == 0 and done.stdout.rstrip().endswith("5 passed, 0 failed"), done.stdout + done.stderr


def test_another_thread_may_run_the_callbacks(torch, movable):
    tensor = torch.arange(1000)
    aside = sublet.torch.offload(tensor)
    for call in (aside.on_pause, aside.on_resume):
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    assert torch.equal(tensor, torch.arange(1000))
