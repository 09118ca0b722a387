# SPDX-License-Identifier: Apache-2.0
"""Looks functions of the driver up by every route that needs no compiler, before and after cuInit, and prints what it
found as JSON.

lookups.py NAMES TABLE: NAMES has a name on each line, for dlsym. TABLE has name, version and flags for
cuGetProcAddress, as in simgpu/cuda/runtime_lookups.tsv. Every answer is [library, symbol], or null.
"""
import ctypes
import json
import os
import sys


class Info(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("symbol", ctypes.c_char_p),
                ("address", ctypes.c_void_p)]


def rows(path):
    with open(path, encoding="utf-8") as file:
        return [line.rstrip("\n").split("\t") for line in file if line.strip() and not line.startswith("#")]


def place(address):
    info = Info()
    if not address or not ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(info)):
        return None
    assert info.address == address, "not the beginning of a function"
    return [os.path.basename(info.file.decode()), info.symbol.decode()]


def by_dlsym(driver, name):
    try:
        return place(ctypes.cast(getattr(driver, name), ctypes.c_void_p).value)
    except AttributeError:
        return None


def by_address(driver, name, version, flags, second):
    function, status = ctypes.c_void_p(1), ctypes.c_int(-1)
    arguments = [name.encode(), ctypes.byref(function), int(version), ctypes.c_uint64(int(flags))]
    if second:
        result = driver.cuGetProcAddress_v2(*arguments, ctypes.byref(status))
    else:
        result = driver.cuGetProcAddress(*arguments)
    return [result, status.value, place(function.value)]


def look_up(driver, names, table):
    return {"dlsym": {name: by_dlsym(driver, name) for [name] in names},
            "first": [by_address(driver, *row, second=False) for row in table],
            "second": [by_address(driver, *row, second=True) for row in table]}


def main():
    driver = ctypes.CDLL("libcuda.so.1")
    words = [rows(path) for path in sys.argv[1:]]
    print(json.dumps({"before": look_up(driver, *words), "init": driver.cuInit(0), "after": look_up(driver, *words)}))


main()
