"""``python -m trinity_jax``."""

import sys

from trinity_jax.cli import main

sys.exit(main())
