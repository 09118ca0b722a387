# SPDX-License-Identifier: Apache-2.0
"""`python -m sublet.ray`: starts Ray with the VRAM of this machine, and shows the leases of its work."""
import sys

from ._start import main

sys.exit(main(sys.argv[1:]))
