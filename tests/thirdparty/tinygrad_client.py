# SPDX-License-Identifier: Apache-2.0
"""Copies numbers to the card and back with tinygrad, and starts a kernel; prints what came back as JSON."""
import json

from tinygrad import Device, Tensor

there = Tensor(list(range(1000)), device="CUDA").realize()
back = there.tolist()
(there + 1).realize()  # compiled by NVRTC and launched; a simulated card computes nothing of it
Device["CUDA"].synchronize()
print(json.dumps({"device": Device.DEFAULT, "right": back == list(range(1000))}))
