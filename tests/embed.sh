#!/bin/sh
# sh tests/embed.sh: examples/embed/bytes.c turns every byte there is into itself, and refuses a file that is missing or empty.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAIL bytes: $*"; exit 1; }
cc -std=c99 -Wall -Wextra -Werror examples/embed/bytes.c -o "$folder/bytes"
awk 'BEGIN { for (i = 0; i < 512; i++) printf "\\%03o", i % 256 }' > "$folder/escapes"
printf "$(cat "$folder/escapes")" > "$folder/all"
"$folder/bytes" "$folder/all" all > "$folder/all.h"
cat > "$folder/check.c" <<'EOF'
#include "all.h"
int main(void)
{
    int i;
    for (i = 0; i < 512; i++) if (sizeof all != 512 || all[i] != i % 256) return 1;
    return 0;
}
EOF
cc -std=c99 -Wall -Wextra -Werror "$folder/check.c" -o "$folder/check"
"$folder/check" || fail "the array is not the file"
: > "$folder/empty"
for file in "$folder/empty" "$folder/missing"; do
    if "$folder/bytes" "$file" x >/dev/null 2>&1; then fail "$file was taken"; fi
done
