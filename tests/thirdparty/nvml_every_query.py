# SPDX-License-Identifier: Apache-2.0
"""Sends every query that takes just a card to NVML, by nvidia-ml-py, and prints the answers as JSON."""

import inspect
import json

import pynvml


def plain(value):
    if isinstance(value, bytes):
        return value.decode()
    if hasattr(value, "_fields_"):
        return {name: plain(getattr(value, name)) for name, *_ in value._fields_}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)


def ask(function, card):
    try:
        return {"answer": plain(function(card))}
    except pynvml.NVMLError as error:
        return {"refused": error.value, "text": str(error)}


def takes_a_card_only(function):
    parameters = list(inspect.signature(function).parameters.values())
    needed = [parameter for parameter in parameters if parameter.default is inspect.Parameter.empty]
    return len(needed) == 1 and needed[0].name in ("handle", "device")


pynvml.nvmlInit()
first = pynvml.nvmlDeviceGetHandleByIndex(0)
answers = {}
for name, function in inspect.getmembers(pynvml, inspect.isfunction):
    if name.startswith("nvmlDevice") and takes_a_card_only(function):
        try:
            answers[name] = ask(function, first)
        except Exception as error:  # the client itself failed on the answer
            answers[name] = {"broken": f"{type(error).__name__}: {error}"}
print(json.dumps(answers))
