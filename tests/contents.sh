#!/bin/sh
# sh tests/contents.sh [tensornet.h]: the table of contents in the first comment, the banners and the tags agree, also in
# tensornet_cuda.cu; files of the command `tn` call only files above them; and the lists of mutants fit the sources.
# tests/map.awk, tests/calls.awk and tests/heavy/mutants/format.txt say what is checked. Prints only what is wrong.
status=0
awk -v check=1 -f tests/map.awk "${1:-tensornet.h}" || status=1
awk -v check=1 -v cuda=1 -f tests/map.awk tensornet_cuda.cu || status=1
awk -f tests/calls.awk tools/tn/tn.h tools/tn/*.c || status=1
for list in header cuda; do
    awk -f tests/heavy/mutants/mutate.awk "tests/heavy/mutants/$list.txt" $(sh tests/heavy/mutants/sources.sh $list) || status=1
done
# The rules find something in each of these files.
for file in src/io/npy.c src/text/bpe.c; do
    awk -v every=20 -f tests/heavy/mutants/rules.awk $file | grep -q ' => ' ||
        { echo "tests/heavy/mutants/rules.awk finds nothing in $file"; status=1; }
done
exit $status
