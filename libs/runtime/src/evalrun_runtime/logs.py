"""Log lines on stderr, as text for people or as JSON for collectors."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Literal


class JsonFormatter(logging.Formatter):
    """A JSON object a line: time, level, logger, message, and the traceback if there is any."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its newline."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def configure_logging(log_format: Literal["text", "json"], level: str) -> None:
    """Send every logger to stderr; called once, at start."""
    handler = logging.StreamHandler(sys.stderr)
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if log_format == "json" else plain)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
