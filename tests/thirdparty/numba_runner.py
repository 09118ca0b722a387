# SPDX-License-Identifier: Apache-2.0
"""Runs one module of numba-cuda's own driver tests. Its last line is {test: [outcome, first line of the reason]}."""

import json
import sys
import unittest


class Outcomes(unittest.TextTestResult):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.all = {}

    def note(self, test, outcome, why=""):
        name = test.id().replace("numba.cuda.tests.cudadrv.", "")
        self.all.setdefault(name, [outcome, why])

    def addSuccess(self, test):
        super().addSuccess(test)
        self.note(test, "pass")

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.note(test, "fail", str(error[1]).split("\n")[0][:160])

    def addError(self, test, error):
        super().addError(test, error)
        self.note(test, "fail", f"{error[0].__name__}: {error[1]}".split("\n")[0][:160])

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, "skip", reason.split("\n")[0][:160])

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            self.note(test, "fail", str(error[1]).split("\n")[0][:160])


if __name__ == "__main__":  # some tests start processes that load this file again
    suite = unittest.defaultTestLoader.loadTestsFromName(f"numba.cuda.tests.cudadrv.{sys.argv[1]}")
    result = unittest.TextTestRunner(resultclass=Outcomes, verbosity=0).run(suite)
    print(json.dumps(result.all))
