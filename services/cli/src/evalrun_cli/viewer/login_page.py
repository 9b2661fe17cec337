"""The page on which a person enters the token: a form without scripts."""

from typing import Final

LOGIN_POLICY: Final = "default-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>Log in · evalrun view</title>
</head>
<body>
<main>
<h1>evalrun view</h1>
<p role="alert">PROBLEM</p>
<form method="post" action="">
<p><label for="token">Token</label><br>
<input id="token" name="token" type="password" autocomplete="current-password" size="40"
  maxlength="1000" required autofocus></p>
<p><button>Log in</button></p>
</form>
<p>The session lasts 12 hours. It needs https, or a port-forward to this machine.</p>
</main>
</body>
</html>
"""


def login_page(problem: str) -> bytes:
    """Return the page. The empty `action` keeps the part of the address after #.

    Args:
        problem: a sentence of this program, because it is not escaped; empty if nothing is wrong.
    """
    return _PAGE.replace("PROBLEM", problem).encode()
