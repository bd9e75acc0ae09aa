"""Reads what tensornet.h declares: its constants, enumerations, structs, functions and their comments.

    python3 declarations.py tensornet.h > declarations.json

The public part of the header is regular, which is all that this relies on; docs/api.md is made from it in the same way
(tools/api.awk). A type is [base, stars, const, extents]: ["tn_tensor", 1, true, []] is `const tn_tensor *`. Something is const if
the callee does not write where the pointers lead, as in `tn_tensor *const *`.
"""
import json
import re
import sys

COMMENT = re.compile(r"/\*.*?\*/", re.S)
DIRECTIVE = re.compile(r"#(?:[^\n\\]|\\.)*", re.S)


def declarations(text):
    """Yields (declaration, comment) for each, with comments and directives inside of a declaration removed."""
    at, comment, shared = 0, "", ""
    while at < len(text):
        blank = re.compile(r"\s*").match(text, at)
        if blank.group().count("\n") > 1:
            comment = shared = ""
        at = blank.end()
        skipped = COMMENT.match(text, at) or DIRECTIVE.match(text, at)
        if skipped:
            if text[at] == "/":
                comment = skipped.group()
            elif skipped.group().startswith("#define"):
                yield skipped.group(), ""
            at = skipped.end()
            continue
        depth, end = 0, at
        while end < len(text) and (text[end] != ";" or depth):
            skipped = COMMENT.match(text, end) or DIRECTIVE.match(text, end)
            if skipped:
                end = skipped.end()
                continue
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            if depth < 0 or text[end:end + 1] == "{" and text[at:end].strip() == 'extern "C"':
                break                                       # the braces of extern "C" declare nothing
            end += 1
        body = DIRECTIVE.sub(" ", COMMENT.sub(" ", text[at:end]))
        behind = re.compile(r";[ \t]*(/\*.*?\*/)", re.S).match(text, end)
        shared = comment or shared
        if behind:
            yield " ".join(body.split()), behind.group(1)
        else:
            yield " ".join(body.split()), shared
        comment, at = "", behind.end() if behind else end + 1


def plain(comment):
    return "\n".join(re.sub(r"^ {1,3}|^/\*[ -]*|[ -]*\*/$", "", line).rstrip() for line in comment.split("\n")).strip()


class Header:
    def __init__(self, text):
        self.text = text.partition("#ifndef TENSORNET_H")[2].partition("#endif /* TENSORNET_H */")[0]
        self.constants, self.enums, self.structs, self.callbacks, self.functions = {}, {}, {}, {}, {}
        self.opaque, self.notes = [], {}
        for declaration, comment in declarations(self.text):
            self.read(declaration, comment)
        self.opaque = [name for name in self.opaque if name not in self.structs]

    def read(self, what, comment):
        define = re.match(r"#define\s+(TN_\w+)\s+(.*?)\s*(?:/\*.*)?$", what, re.S)
        enum = re.match(r"typedef enum \w+ \{(.*)\} (\w+)$", what)
        struct = re.match(r"(?:typedef )?struct (\w+) \{(.*)\}", what)
        if define:
            value = re.fullmatch(r"\(?(-?[\d.]+)\)?", define.group(2))
            if value:
                self.constants[define.group(1)] = json.loads(value.group(1))
        elif enum:
            self.enums[enum.group(2)] = self.items(enum.group(1))
        elif struct:
            self.structs[struct.group(1)] = self.fields(struct.group(1), struct.group(2))
            named = dict(self.structs[struct.group(1)])
            self.notes[struct.group(1)] = {f: note for f, note in self.comments(struct.group(1)).items() if f in named}
        elif re.match(r"typedef struct \w+ \w+$", what):
            self.opaque.append(what.split()[-1])
        elif re.match(r"typedef .*\(\*", what):
            self.callback(what[len("typedef "):])
        elif what.startswith("TN_API"):
            young = "TN_EXPERIMENTAL" in what
            head, name, arguments = re.match(r"(.*?)(\w+)\s*\((.*)\)$", re.sub("TN_API|TN_EXPERIMENTAL", "", what)).groups()
            self.functions[name] = {"result": self.type(head)[1], "arguments": self.arguments(arguments),
                                    "doc": plain(comment), "young": young}

    def items(self, body):
        listed = re.search(r"(\w+)\(TNI_X\)", body)         # the kernels, a list of the form X(NAME, ...)
        if listed:
            macro = re.search(r"#define TN_KERNELS_BY\(X, T, S, U\)((?:[^\n\\]|\\.)*)", self.text, re.S).group(1)
            body = ",".join("TN_KERNEL_" + name for name in re.findall(r"[XTSU]\((\w+),", macro)) + ",TN_KERNEL_COUNT"
        result, value = {}, 0
        for item in filter(None, (part.strip() for part in body.split(","))):
            name, _, given = item.partition("=")
            value = int(given) if given else value
            result[name.strip()] = value
            value += 1
        return result

    def type(self, text):
        """`const tn_tensor *const in[3]` -> ("in", ["tn_tensor", 2, True, [3]])"""
        extents = [self.constants.get(n) or self.count(n) for n in re.findall(r"\[(\w+)\]", text)]
        text = re.sub(r"\[\w+\]", "", text)
        words = [word for word in re.findall(r"\w+|\*", text) if word != "struct"]
        base = next(word for word in words if word not in ("const", "*"))
        names = [word for word in words if word not in ("const", "*")][1:]
        return names[0] if names else "", [base, words.count("*"), "const" in words, extents]

    def count(self, name):
        return int(name) if name.isdigit() else next(e[name] for e in self.enums.values() if name in e)

    def arguments(self, text):
        return [] if text.strip() in ("void", "") else [self.type(part) for part in text.split(",")]

    def callback(self, text, owner=""):
        head, name, arguments = re.match(r"(.*?)\(\*(\w+)\)\((.*)\)$", text).groups()
        self.callbacks[owner + name] = {"result": self.type(head)[1], "arguments": self.arguments(arguments)}
        return name, [owner + name, 0, False, []]

    def fields(self, struct, body):
        result = []
        for line in filter(None, (part.strip() for part in body.split(";"))):
            if "(*" in line:
                result.append(self.callback(line, struct + "."))
                continue
            first, *others = line.split(",")                # `const char *x, *y`: both are of the first word's type
            base = re.match(r"(?:const |struct )*\w+", first).group()
            result += [self.type(part) for part in [first] + [base + " " + other for other in others]]
        return result

    def comments(self, struct):
        """What the comment behind each field of a struct says; several fields of one line share it"""
        result, body = {}, re.search(r"struct %s \{\n(.*?)\n\}" % struct, self.text, re.S)
        for line, comment in re.findall(r"^ *([^/\n;]*);[ ]*/\*(.*?)\*/", body.group(1) if body else "", re.S | re.M):
            result.update(dict.fromkeys(re.findall(r"(\w+)(?:\[\w+\])?(?=,|$)", line), " ".join(comment.split())))
        return result


def read(text):
    header = Header(text)
    names = "constants", "enums", "structs", "notes", "opaque", "callbacks", "functions"
    return {name: getattr(header, name) for name in names}


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        json.dump(read(file.read()), sys.stdout, separators=(",", ":"))
