"""Makes names.c of a version: python3 tests/kept/names.py > tests/kept/VERSION/names.c

It calls each function of tensornet.h with arguments of the declared types, reads or sets each field, and uses each constant. What
is marked as experimental, and what only backends use, is left out."""
import re
import subprocess
import sys
import textwrap

sys.path.insert(0, "tools/python/tensornet")
import declarations

BACKENDS = {"TN_BACKEND_ABI", "TN_CALL_IN", "TN_CALL_OUT", "TN_COMM_ABI", "TN_SIMD_MAX", "tn_view", "tn_call", "tn_backend", "tn_comm", "tn_mark", "tn_traffic"}
INTERNAL = {("tn_desc", "wgmma"), ("tn_desc", "comm"), *(("tn_tensor", name) for name in ("compact", "flags", "alive", "prev", "next"))}
SET = {"tn_truncation", "tn_init", "tn_schedule", "tn_source", "tn_sink", "tn_edit", "tn_tap"}      # beside the descs
header = declarations.read(open("tensornet.h").read())
text = subprocess.run(["cc", "-E", "-P", "-I.", "-"], input='#include "tensornet.h"', capture_output=True, text=True, check=True).stdout
text = re.sub(r"\s+", " ", text).replace("_Bool", "bool")


def tidy(kind):
    return re.sub(r"\s+", " ", re.sub(r"(?<=\w)\*", " *", re.sub(r"\s*\*\s*", "*", kind).replace("*const", "* const "))).strip()


def type_of(argument):
    """`const int64_t *shape` -> `const int64_t *`, `char why[256]` -> `char *`"""
    kind, extent = re.match(r"(.*?[\s*])\w+(\[.*)?$", argument.strip()).groups()
    return tidy(kind + ("*" if extent else ""))


def put(line):
    print("\n".join(textwrap.wrap(line, 128, initial_indent=" " * 4, subsequent_indent=" " * 8, break_long_words=False,
                                  break_on_hyphens=False)))


version = ".".join(str(header["constants"]["TN_VERSION_" + part]) for part in ("MAJOR", "MINOR"))
print(f"""/* All names of version {version}: each function is called with arguments of the types that it declared, each field is read or set, each
   constant is used. It is compiled and linked, as C and as C++; nothing of it runs. Left out is what was marked as
   experimental, and what only backends use (TN_BACKEND_ABI). */
#include <stdio.h>
#include "tensornet.h"

#define OF(T) (*(T *)at)                    /* something of this type */

static void functions(void *at)
{{""")
for result, name, arguments in re.findall(r"\bextern ([^;{}()]*?[ *])(tn_\w+)\(((?:[^()]|\([^()]*\))*)\);", text):
    if header["functions"].get(name, {"young": True})["young"]:
        continue
    given = [] if arguments == "void" else re.split(r",(?![^(]*\))", arguments)
    call = f"{name}({', '.join(f'OF({type_of(one)})' for one in given)});"
    put(call if tidy(result) == "void" else f"OF({tidy(result)}) = {call}")
print("}\n\nstatic void fields(void *at)\n{")
for name in header["structs"]:
    if name in BACKENDS:
        continue
    uses = [f"{name} *s = ({name} *)at;"]
    for declared in filter(None, map(str.strip, re.search(rf"struct {name} \{{(.*?)\}}", text)[1].split(";"))):
        if "(" in declared:
            uses.append(f"(void)s->{re.search(r'[(][*](.*?)[)]', declared)[1]};")
            continue
        base, rest = re.match(r"((?:const |struct )?\w+) ?(.*)", declared).groups()
        for stars, field, extent in re.findall(r"((?:\*|const\b|\s)*)(\w+)((?:\[.*?\])*)(?:,|$)", rest):
            kind = tidy(base + " " + stars)
            if (name, field) not in INTERNAL:
                uses.append(f"(void)s->{field}[0];" if extent else f"s->{field} = OF({kind});"
                            if name.endswith("desc") or name in SET else f"OF({kind}) = s->{field};")
    put("{ " + " ".join(uses) + " }")
values = {kind: names for kind, names in header["enums"].items() if kind != "tn_kernel"}
print("}\n\nstatic const double constants[] = {")
unnamed = [item.split("=")[0].strip() for body in re.findall(r"\benum \{(.*?)\}", text) for item in body.split(",")]
put(", ".join([name for name in header["constants"] if name not in BACKENDS] + [name for name in unnamed if name] +
              [name for names in values.values() for name in names if not name.startswith("TN_KERNEL_")]))
print("};\n\n/* What a zero means. */\ntypedef char zeros[")
zeros = [name for kind, names in values.items() if kind for name, value in names.items() if value == 0]
put(" == 0 && ".join(zeros) + " == 0 ? 1 : -1];")
print("""
int main(int count, char **words)
{
    double sum = 0;
    (void)words;
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) sum += constants[i];
    if (count > 1000000) { functions(&sum); fields(&sum); }
    printf("constants add up to %g\\n", sum);
    return sizeof(zeros) != 1;
}""")
