"""``python -m ringcast.cli`` is ``ringcast``."""

from ringcast.cli.app import app

app()
