"""``python -m creinn`` is the command line."""

import sys

from creinn.cli.main import main

sys.exit(main())
