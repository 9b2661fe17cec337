"""Removes control sequences from text: names and messages come from untrusted data."""

import logging


def printable(text: str) -> str:
    """Return a line with escape sequences and control characters spelt out."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def printable_lines(text: str) -> str:
    """Return `printable` of each line of a text."""
    return "\n".join(printable(line) for line in text.split("\n"))


class PrintableFormatter(logging.Formatter):
    """Formats log records for the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as lines that cannot steer a terminal."""
        return printable_lines(super().format(record))
