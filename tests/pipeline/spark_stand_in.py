"""Spark's scripts as far as ``ringcast cluster`` can tell: a master that lists workers, a port.

A file ``fails`` beside the script holds words; a process with one of them in its command fails.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

script, *arguments = sys.argv[1:]
settings = Path(arguments[arguments.index("--properties-file") + 1])
known = settings.with_name("known")
fails = Path(script).with_name("fails")


class Page(BaseHTTPRequestHandler):
    """The master's page."""

    def do_GET(self) -> None:
        """Every worker has left a word."""
        alive = known.read_text().split() if known.exists() else []
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"workers": [{"state": state} for state in alive]}).encode())

    def log_message(self, *words: object) -> None:
        """Nothing."""


if fails.exists() and any(word in " ".join(arguments) for word in fails.read_text().split()):
    sys.exit("it is broken")
if "--class" in arguments:
    told = dict(line.split(" ", 1) for line in settings.read_text().splitlines())
    listening = socket.create_server(("127.0.0.1", int(told["spark.connect.grpc.binding.port"])))
elif arguments[0].endswith("Master"):
    port = int(arguments[arguments.index("--webui-port") + 1])
    HTTPServer(("127.0.0.1", port), Page).serve_forever()
else:
    with known.open("a") as file:
        file.write("ALIVE\n")
time.sleep(600)
