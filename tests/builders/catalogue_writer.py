"""A process that writes one catalogue without end: `python -m builders.catalogue_writer DIR`."""

import sys
import time
import uuid

from evalrun_results.catalogue.store import Catalogue


def main() -> None:
    """Update and compact until somebody kills it, and say `ready` after the first time."""
    catalogue = Catalogue(sys.argv[1], now=time.time, new_name=lambda: uuid.uuid4().hex)
    catalogue.update()
    print("ready", flush=True)
    while True:
        catalogue.compact()
        catalogue.update()


if __name__ == "__main__":
    main()
