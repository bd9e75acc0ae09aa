"""python3 notebook.py NOTEBOOK: runs its cells, as nbclient does, and prints their texts and pictures. A cell that fails is an
error. What the cells return is not stored in the file."""
import os
import sys

import nbclient
import nbformat

path = sys.argv[1]
notebook = nbformat.read(path, as_version=4)
if any(cell.get("outputs") for cell in notebook.cells):
    sys.exit(f"{path} has outputs: clear them before it is committed")
nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": os.path.dirname(path)}}).execute()
for cell in notebook.cells:
    for output in cell.get("outputs", []):
        print(output.get("text") or output["data"].get("image/svg+xml") or output["data"].get("text/html", "")[:200])
