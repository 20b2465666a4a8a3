"""`python -m wevo_nb.tasks.sites`: see serve.py."""

import sys

from wevo_nb.tasks.sites.serve import main

main(sys.argv[1:])
