#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a page of the manual from a program's --help, for programs with few options.

help_page.py PROGRAM SECTION SUMMARY [SEE_ALSO...] > PAGE
"""
import pathlib
import subprocess
import sys


def escaped(text):
    for plain, roff in (("\\", "\\e"), ("-", "\\-"), ("`", "\\(ga"), ("~", "\\(ti"), ("^", "\\(ha")):
        text = text.replace(plain, roff)
    return "\n".join("\\&" + line if line[:1] in (".", "'") else line for line in text.splitlines())


def page(name, section, summary, see_also, version, text):
    return (f'.TH "{escaped(name.upper())}" {section} "" "{escaped(version)}" "Sublet"\n'
            f".SH NAME\n{escaped(name)} \\- {escaped(summary)}\n"
            f".SH DESCRIPTION\n.nf\n{escaped(text.rstrip())}\n.fi\n"
            f".SH SEE ALSO\n{escaped(', '.join(see_also))}\n")


def main(argv):
    program, section, summary, *see_also = argv
    said = [subprocess.run([program, flag], check=True, capture_output=True, text=True).stdout
            for flag in ("--version", "--help")]
    print(page(pathlib.Path(program).name, section, summary, see_also, said[0].strip(), said[1]), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
