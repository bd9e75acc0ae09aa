"""python3 layout.py declarations.json: a C program that prints how the compiler lays out each struct, and each constant."""
import json
import sys

header = json.load(open(sys.argv[1]))
print('#include <stdio.h>\n#include <stddef.h>\n#include "tensornet.h"\nint main(void)\n{')
for name, fields in header["structs"].items():
    print(f'    printf("{name} %zu\\n", sizeof({"struct " if name in ("tn_backend", "tn_comm", "tn_tensor") else ""}{name}));')
    for field, _ in fields:
        print(f'    printf("{name}.{field} %zu\\n", offsetof({name}, {field}));')
for items in header["enums"].values():
    for item in items:
        print(f'    printf("{item} %d\\n", (int){item});')
print("    return 0;\n}")
