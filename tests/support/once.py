# SPDX-License-Identifier: Apache-2.0
"""Values that are computed once for each process, also when several threads ask for them at the same time."""
import functools
import threading


def once(function):
    """Keeps the result of a function without arguments. A second thread waits for the first one instead of computing
    the value too; functools.cache lets both of them compute.
    """
    lock = threading.Lock()
    results = []

    @functools.wraps(function)
    def get():
        with lock:
            if not results:
                results.append(function())
        return results[0]
    return get
