# SPDX-License-Identifier: Apache-2.0
"""Debian's ffmpeg, which loads libcuda.so.1 itself: frames go up to the card and come back unchanged."""

import pytest

pytestmark = pytest.mark.heavy


def ffmpeg(foreign, cards, source, filters, *output):
    device = ["-init_hw_device", "cuda=card:0", "-filter_hw_device", "card"]
    command = [foreign.program("ffmpeg"), "-hide_banner", "-loglevel", "error", *device]
    return foreign.run(cards, *command, "-f", "lavfi", "-i", source, "-vf", filters, "-f", *output)


def frames(foreign, cards, filters):
    done = ffmpeg(foreign, cards, "testsrc2=size=322x242:rate=10:duration=1", filters, "framemd5", "-")
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if not line.startswith("#")]


@pytest.fixture
def with_filter(foreign, cards):
    listed = foreign.run(cards, foreign.program("ffmpeg"), "-hide_banner", "-filters").stdout
    if "hwupload_cuda" not in listed:
        pytest.skip("this ffmpeg was built without hwupload_cuda")


@pytest.mark.parametrize("pixels", ["nv12", "yuv420p", "p010le", "bgr0"])
def test_frames_come_back_from_the_card_unchanged(foreign, cards, with_filter, pixels):
    there_and_back = frames(foreign, cards, f"format={pixels},hwupload_cuda,hwdownload,format={pixels}")
    assert len(there_and_back) == 10
    assert there_and_back == frames(foreign, cards, f"format={pixels}")
    shown = cards.show()
    assert sum(count for name, count in shown["calls"].items() if name.startswith("cuMemcpy2D")) >= 20
    assert shown["violations"] == 0 and shown["devices"][0]["used_bytes"] == 0


def test_too_large_a_frame_for_the_card_is_an_error_not_a_crash(foreign, make_cards, with_filter):
    cards = make_cards("1x64MiB,reserve=0,context_bytes=48MiB", name="tiny")
    there_and_back = "format=nv12,hwupload_cuda,hwdownload,format=nv12"
    done = ffmpeg(foreign, cards, "testsrc2=size=7680x4320:duration=0.1", there_and_back, "null", "-")
    assert done.returncode > 0 and "CUDA_ERROR_OUT_OF_MEMORY" in done.stderr


def test_a_filter_that_needs_real_kernels_is_refused(foreign, cards, with_filter):
    scaled = "format=nv12,hwupload_cuda,scale_cuda=160:120,hwdownload,format=nv12"
    done = ffmpeg(foreign, cards, "testsrc2=size=320x240:duration=0.1", scaled, "null", "-")
    assert done.returncode > 0 and "CUDA_ERROR_NOT_SUPPORTED" in done.stderr
