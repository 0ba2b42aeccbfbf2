#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Serves the files of a folder over HTTP for tests of downloads.

usage: range_server.py FOLDER LOG [--no-ranges] [--break-after BYTES] [--endless]
Prints its port and serves until it is killed. LOG gets a line per request: the
path, and the Range header or `whole`.
  --no-ranges    answers a request for a part with the whole file
  --break-after  ends the first answer after this many bytes
  --endless      goes on with zeros after the file's bytes, until the client goes
"""
import argparse
import http.server
import os
import re

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("log")
parser.add_argument("--no-ranges", action="store_true")
parser.add_argument("--break-after", type=int)
parser.add_argument("--endless", action="store_true")
options = parser.parse_args()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        wanted = self.headers.get("Range")
        with open(options.log, "a") as log:
            print(self.path, wanted or "whole", file=log)
        path = os.path.join(options.folder, os.path.basename(self.path))
        if not os.path.isfile(path):
            self.send_error(404)
            return
        with open(path, "rb") as file:
            body = file.read()
        size = 2**40 if options.endless else len(body)
        part = re.fullmatch(r"bytes=(\d+)-", wanted or "")
        if part and not options.no_ranges:
            first = int(part.group(1))
            if first >= size:
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{size}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{size-1}/{size}")
            body = body[first:]
        else:
            self.send_response(200)
        if options.endless:
            self.end_headers()
            self.send_for_ever(body)
            return
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if options.break_after is not None:
            body = body[:options.break_after]
            options.break_after = None
            self.close_connection = True
        self.wfile.write(body)

    def send_for_ever(self, body):
        self.close_connection = True
        try:
            while True:
                self.wfile.write(body)
                body = bytes(65536)
        except OSError:
            pass

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
