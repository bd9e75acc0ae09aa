"""python3 notebook.py NOTEBOOK [--store]: runs its cells, as nbclient does, and prints their texts and the kinds of their
pictures. A cell that fails is an error, and so are stored outputs of other kinds than those that the cells have now: --store
puts these into the file, so that it can be read where nothing runs."""
import os
import re
import sys

import nbclient
import nbformat

path, store = sys.argv[1], "--store" in sys.argv
notebook = nbformat.read(path, as_version=4)


def kinds(cell):
    """What the outputs of a cell are, without their numbers and words, which differ between processors; a library that was
    compiled without a writer of PNG shows an SVG"""
    return [one.output_type + " " + re.sub("image/[a-z+]+", "picture", " ".join(sorted(one.get("data", {}))))
            for one in cell.get("outputs", [])]


def join(cell):
    """Makes one output of texts that the kernel sent in parts"""
    joined = []
    for one in cell.get("outputs", []):
        if joined and one.output_type == joined[-1].output_type == "stream" and one.name == joined[-1].name:
            joined[-1].text += one.text
        else:
            joined.append(one)
    if joined:
        cell.outputs = joined


stored = [kinds(cell) for cell in notebook.cells]
nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": os.path.dirname(path)}}).execute()
for cell in notebook.cells:
    join(cell)
    for output in cell.get("outputs", []):
        print(output.get("text") or "a picture or a value: " + " ".join(output.get("data", {})))
    cell.metadata.pop("execution", None)                    # times
if store:
    notebook.metadata = {"kernelspec": notebook.metadata.kernelspec, "language_info": {"name": "python"}}
    nbformat.write(notebook, path)
elif stored != [kinds(cell) for cell in notebook.cells]:
    sys.exit(f"{path}: its outputs are not those that its cells have: python3 tests/python/notebook.py {path} --store")
left = re.search(r"/(tmp|home|root|work|Users)/[\w/.-]+|Traceback", nbformat.writes(notebook))
if left:
    sys.exit(f"{path}: a stored output has {left.group()!r}, expected none of this machine and no failure")
