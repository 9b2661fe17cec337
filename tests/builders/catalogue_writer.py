"""A process that writes one catalogue without end: `python -m builders.catalogue_writer DIR`."""

import sys
import time
import uuid

from evalrun_results.catalogue.store import Catalogue


def main() -> None:
    """Say `ready`, then update and compact until somebody kills it."""
    catalogue = Catalogue(sys.argv[1], now=time.time, new_name=lambda: uuid.uuid4().hex)
    print("ready", flush=True)
    while True:
        catalogue.update()
        catalogue.compact()


if __name__ == "__main__":
    main()
