"""Pages and pictures in a notebook. The pages are those of the command `tn look`, which the wheel holds."""
import html
import os
import shutil
import subprocess
import sysconfig
import tempfile
import webbrowser
from pathlib import Path

from .objects import TensornetError

LARGE = 60_000                                              # bytes of an SVG that a notebook need not hold


class Page:
    """A page of `tn look`: a notebook shows it inline, save() writes it to a file."""

    def __init__(self, text: str, height: int = 720):
        self.text, self.height = text, height

    def save(self, path) -> None:
        Path(path).write_text(self.text, encoding="utf-8")

    def open(self, path=None) -> None:
        """Shows the page in a web browser; path: where it is, else a new file is written"""
        if path is None:
            path = Path(tempfile.mkdtemp()) / "page.html"
            self.save(path)
        webbrowser.open(Path(path).resolve().as_uri())

    def __repr__(self):
        return f"<Page: {len(self.text) / 1e6:.1f} MB; .open() shows it in a browser, .save('page.html') writes it>"

    def _repr_html_(self):
        return (f'<iframe srcdoc="{html.escape(self.text)}" style="width:100%;height:{self.height}px;border:0" '
                'title="tn look"></iframe>')


def folders():
    """Where pip puts the command of the wheel: in this environment, for this user, or beside the package (--target)"""
    user = "osx_framework_user" if sysconfig.get_config_var("PYTHONFRAMEWORK") else f"{os.name}_user"
    return [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", user), Path(__file__).parents[1] / "bin"]


def command():
    """The command tn: $TN, or that of the wheel, or one in the PATH"""
    found = os.environ.get("TN") or shutil.which("tn", path=os.pathsep.join(map(str, folders()))) or shutil.which("tn")
    if not found:
        raise TensornetError("look: the command tn is not there: `make tn` builds it, a wheel that is made after that holds it, "
                             "and the variable TN of the environment can name it")
    return found


def look(model, height: int = 720, **options) -> Page:
    """The page that `tn look MODEL` makes, of a file or the folder of a run; options as keywords: title="...", pixels="8x8"."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        given = [word for name, value in options.items() for word in ("--" + name.replace("_", "-"), str(value))]
        done = subprocess.run([command(), "look", os.fspath(model), "--out", page, *given], capture_output=True, text=True)
        if done.returncode or not page.exists():
            raise TensornetError("look: " + (done.stderr or done.stdout or "the command made no page").strip())
        return Page(page.read_text(encoding="utf-8"), height)


def look_at_params(self, **options) -> Page:
    """The page that `tn look` makes of these parameters, with its options as keywords"""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        self.save(path)
        return look(path, **options)


def look_at_transformer(self, tokenizer=None, **options) -> Page:
    """The page that `tn look` makes of this model, whose parameters have names without a prefix: transformer_init("", ...)"""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        self._owners[0].save(path)
        self.ctx.transformer_config_write(self.desc, Path(folder) / "config.json")
        if tokenizer and not tokenizer.is_bytes():          # of bytes there is nothing to save
            tokenizer.save(Path(folder) / "tokenizer.json")
        return look(path, **options)


def saved(image, end):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"image.{end}"
        getattr(image, f"save_{end}")(path)
        return path.read_bytes()


def pictures(image):
    """A picture as SVG and as PNG, one of which is None: with many parts a PNG is smaller, which some libraries cannot write"""
    text, raster = saved(image, "svg").decode(), None
    if len(text) > LARGE:
        try:
            raster = saved(image, "png")
        except TensornetError:                              # it was compiled without stb_image_write.h
            pass
    return None if raster else text, raster


def svg(image):
    return pictures(image)[0]


def png(image):
    return pictures(image)[1]
