"""python3 tests/get_data_server.py FOLDER: serves FOLDER's files on a free port of this machine, which it prints, until it is
killed. /whole/ANY/FILE sends a file; /broken/ANY/FILE sends half of what is asked for the first time, and can continue;
/thirds/ANY/FILE sends a third of the file at most, each time, so that only a client that continues gets all of it;
/broken_no_ranges/ANY/FILE breaks off the first time as well and always begins at the first byte; all else is not found."""
import http.server
import os
import sys

folder, seen = sys.argv[1], set()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        way, name = self.path.split("/")[1], os.path.basename(self.path)
        path = os.path.join(folder, name)
        if way not in ("whole", "broken", "thirds", "broken_no_ranges") or not os.path.isfile(path):
            return self.send_error(404)
        with open(path, "rb") as file:
            content = file.read()
        asked = self.headers.get("Range", "") if way != "broken_no_ranges" else ""
        start = int(asked[len("bytes="):].split("-")[0]) if asked else 0
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        first = self.path not in seen
        seen.add(self.path)
        if way == "thirds":
            length = len(content) // 3 + 1
        elif way != "whole" and first:
            length = len(content) // 2
        else:
            length = len(content)
        self.wfile.write(content[start:start + length])

    def log_message(self, *_):
        pass


server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
